"""Where nanobot keeps things. Up to 0.2 all of it lies in the workspace; from 0.3 on the sessions lie beside it.

| path | what it is |
|---|---|
| `<workspace>/sessions/*.jsonl` | the sessions of older versions, and those that a newer one could not take along |
| `<workspace>/.nanobot/workspace-id` | the name of the workspace's directory of sessions |
| `<data>/sessions/<id>/*.jsonl` | its sessions; `.workspace` beside them names the workspace |
| `<data>/sessions/<id>/.migration-conflicts/*.jsonl` | older copies of sessions, set aside when they were moved there |
| `<data>/sessions/*.jsonl` | sessions of still older versions, of no workspace in particular |
| `<data>/llm_usage.sqlite3` | what models were asked |
| `<workspace>/USER.md`, `<workspace>/memory/MEMORY.md` | the memory files |

`<data>` is `~/.nanobot` unless nanobot was started with another configuration file, and the workspace lies in it unless the
configuration says otherwise. Other files that end with `.jsonl` are no sessions: `memory/history.jsonl` is a log of what the
memory files were made from, and the sessions still have all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from shared.errors import Malformed
from shared.value import value

_ID = re.compile(r"[0-9a-f]{32}")
_DEFAULT = ".nanobot"


@value
class Layout:
    """Where the files of a nanobot lie."""

    sessions: tuple[Path, ...]  # directories that hold sessions
    workspaces: tuple[Path, ...]
    usage: Path | None  # the database of what models were asked

    @classmethod
    def of(cls, path: Path, home: Path) -> Layout:
        """What belongs to a workspace, to a data directory or to a directory of sessions; Malformed where it is none.

        `home` is where `.nanobot` is looked for when the workspace lies elsewhere.
        """
        if (id := _workspace_id(path)) is not None:
            data = next((one for one in (path.parent, home / _DEFAULT) if (one / "sessions" / id).is_dir()), None)
            if data is None:
                raise Malformed(
                    f"{path} keeps its sessions elsewhere: give the directory that holds nanobot's configuration and sessions/{id}"
                )
            return cls(_holding(data / "sessions" / id, path / "sessions"), (path,), _usage(data))
        if (path / "sessions").is_dir():
            inside = tuple(_directories(path / "sessions"))
            named = tuple(dict.fromkeys(workspace for one in inside if (workspace := _named_by(one, path)) is not None))
            return cls(_holding(*inside, path / "sessions"), named or (path,), _usage(path, path.parent))
        if (path / "workspace").is_dir():
            return cls.of(path / "workspace", home)
        data = path.parent.parent if _ID.fullmatch(path.name) else path.parent
        return cls(_holding(path, *_directories(path)), (), _usage(data))

    def files(self) -> list[Path]:
        """The files of sessions."""
        return [file for directory in self.sessions for file in directory.glob("*.jsonl")]

    def set_aside(self) -> list[Path]:
        """Older copies of sessions."""
        return [file for directory in self.sessions for file in sorted(directory.glob(".migration-conflicts/*.jsonl"))]


def _workspace_id(workspace: Path) -> str | None:
    file = workspace / _DEFAULT / "workspace-id"
    id = file.read_text(encoding="ascii", errors="replace").strip() if file.is_file() else ""
    return id if _ID.fullmatch(id) else None


def _directories(root: Path) -> Iterator[Path]:
    """The directories of the workspaces whose sessions lie here."""
    return (one for one in sorted(root.iterdir()) if _ID.fullmatch(one.name) and one.is_dir())


def _named_by(directory: Path, data: Path) -> Path | None:
    """The workspace that a directory of sessions belongs to, also where all of it was moved to another place."""
    file = directory / ".workspace"
    if not file.is_file():
        return None
    named = Path(file.read_text(encoding="utf-8", errors="replace").strip())
    return next((one for one in (named, data / named.name) if _workspace_id(one) == directory.name), None)


def _holding(*directories: Path) -> tuple[Path, ...]:
    return tuple(one for one in directories if one.is_dir())


def _usage(*directories: Path) -> Path | None:
    return next((path for data in directories if (path := data / "llm_usage.sqlite3").is_file()), None)
