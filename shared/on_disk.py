"""What is written is on disk only when the system was asked to put it there; a new name only when its directory was."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """What was written to a file, or renamed in a directory, is on disk when this returns."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
