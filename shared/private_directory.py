"""Directories of ours that hold what people said: nobody else on the machine may look in."""

from __future__ import annotations

from pathlib import Path


def make_private_directory(path: Path) -> None:
    """Make the directory, and those above it that are missing, for this user only. One that is there is left as it is."""
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:  # `mkdir(parents=True)` would open the parents to everybody
        make_private_directory(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
