"""A file that is being made beside the one whose place it will take. One process at a time makes it; what a killed one left is
used again."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shared.errors import CannotDo
from shared.on_disk import sync
from shared.whole_files import OWNER_ONLY


@contextmanager
def unfinished(target: Path, what: str) -> Iterator[Path]:
    """An empty file for its owner alone. It is gone behind the block, unless it was renamed; CannotDo where it cannot be made or
    another process makes it."""
    path = target.with_name(f".{target.name}.{what}")
    try:
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, OWNER_ONLY)
    except OSError as error:
        raise CannotDo(f"{path} cannot be written: {error.strerror}") from None
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotDo(f"another process is writing {target}") from None
        os.ftruncate(opened, 0)
        os.fchmod(opened, OWNER_ONLY)
        try:
            yield path
        finally:
            if path.exists() and os.path.samestat(os.fstat(opened), path.stat()):
                path.unlink()
    finally:
        os.close(opened)


def put_in_place(path: Path, target: Path) -> None:
    """Let the file take the target's place, at once and on disk."""
    sync(path)
    os.replace(path, target)
    sync(target.parent)
