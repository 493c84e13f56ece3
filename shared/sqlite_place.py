"""Where the file of an SQLite database is, in words."""

from __future__ import annotations

from pathlib import Path


def place_in_words(path: Path) -> str:
    """The whole path. `sqlite:///tmp/x.db` is below the working directory: where /tmp is there too, how to name that one."""
    if path.is_absolute() or len(path.parts) < 2 or not Path("/", path.parts[0]).is_dir():
        return str(path.absolute())
    return f"{path.absolute()} (for /{path} write four slashes: sqlite:////{path})"
