"""What root makes in a directory of somebody else: a service whose user owns DATA_DIR must be able to read and replace it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def hand_over(opened: int, directory: Path) -> None:
    """Give an open file to the owner of the directory that it was made in. Does nothing for users other than root."""
    if os.geteuid() == 0:
        owner = directory.stat()
        os.fchown(opened, owner.st_uid, owner.st_gid)


def hand_over_directory(path: Path) -> None:
    """The same for a directory. A symbolic link is left alone: whoever owns the parent could point it at anything of root's."""
    with suppress(NotADirectoryError):
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            hand_over(opened, path.parent)
        finally:
            os.close(opened)
