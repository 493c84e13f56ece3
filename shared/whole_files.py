"""Files that are replaced together: each is there whole, old or new, and none is changed unless all can be."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from shared.ids import fresh_id
from shared.value import value

OWNER_ONLY = 0o600


@value
class NewContent:
    """What a file will hold, and who may read it. No mode: as before; a new file is for its owner alone."""

    text: str
    mode: int | None = None


def replace_files(files: Mapping[Path, NewContent]) -> None:
    """Put these contents in place. OSError where that fails, and then every file is as it was. A link stays a link.

    A crash between two files leaves the first new and the second old.
    """
    unfinished: dict[Path, Path] = {}
    replaced: dict[Path, bytes | None] = {}
    try:
        for path, content in files.items():
            target = Path(os.path.realpath(path))
            unfinished[target] = _beside(target, content)
        for target, new in unfinished.items():
            before = target.read_bytes() if target.exists() else None
            os.replace(new, target)
            replaced[target] = before
    except OSError:
        for target, before in replaced.items():
            if before is None:
                target.unlink()
            else:
                target.write_bytes(before)
        raise
    finally:
        for new in unfinished.values():
            new.unlink(missing_ok=True)


def create_file(path: Path, text: str) -> None:
    """Write a new file, whole and for its owner alone. FileExistsError where there is one."""
    new = _beside(path, NewContent(text))
    try:
        os.link(new, path)
    finally:
        new.unlink()


def _give(opened: int, target: Path) -> None:
    """Give a file that root writes to whom the file had that it replaces, or else to whom the directory has: `sudo` must not take it
    away from those whose processes read it."""
    if os.geteuid() == 0:
        owner = target.stat() if target.exists() else target.parent.stat()
        os.fchown(opened, owner.st_uid, owner.st_gid)


def _beside(target: Path, content: NewContent) -> Path:
    """The content on disk, beside the file whose place it will take."""
    mode = content.mode
    if mode is None:
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else OWNER_ONLY
    new = target.with_name(f".{target.name}.{fresh_id()}")
    opened = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    try:
        with os.fdopen(opened, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), mode)
            _give(file.fileno(), target)
            file.write(content.text)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    return new
