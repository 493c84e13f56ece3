"""Files that people send, and files that agents answer with."""

from __future__ import annotations

from pydantic import Field

from shared.setting_values import Names
from shared.settings.section import Block, Section

FILE_TYPES = (
    "image/*",
    "audio/*",
    "video/*",
    "text/*",
    "application/json",
    "application/pdf",
    "application/vnd.*",
    "application/msword",
    "application/xml",
    "application/zip",
)


class MediaSettings(Block):
    """Which files of messages are fetched. A file that is not becomes a note to the agent, and its message is answered."""

    max_bytes: int = Field(default=20_000_000, ge=1)
    """A larger file is not fetched."""
    max_files: int = Field(default=20, ge=0)
    """Of one message, or of one album, so many files are fetched. 0: none."""
    fetch_seconds: float = Field(default=60, gt=0)
    """How long fetching one file may take, all attempts together."""
    types: Names = FILE_TYPES
    """Kinds of files that are kept; `image/*` is all of a kind. What a file is follows from its first bytes, not from its name."""
    allowed_hosts: Names = ()
    """Hosts of your own from which files may be fetched although their addresses are private, and by plain http."""
    orphan_hours: float = Field(default=24, gt=0)
    """A file to which no conversation refers is removed so long after it was last fetched."""


class FileSettings(Section):
    """Files that people send, and files that agents answer with."""

    TITLE = "Files"

    media: MediaSettings = MediaSettings()
    """Which files of messages are fetched, and how long those are kept to which nothing refers."""
