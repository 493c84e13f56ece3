"""Names and sizes of files, as people and platforms are shown them."""

from __future__ import annotations

import mimetypes
import re

from shared.codec import storable

NAME_CHARACTERS = 120
_UNSAFE = re.compile(r'[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"<>|:*?]+')
_TYPES = mimetypes.MimeTypes()  # without the machine's own files: the same everywhere


def file_name(said: str | None, kind: str) -> str:
    """The name of a file without its path, and without characters that mean something to a shell or a header. A file
    without a name is called after its type."""
    last = re.split(r"[/\\]", storable(said or ""))[-1]
    name = _UNSAFE.sub("_", last).strip(" .")
    if not name:
        return f"{kind.partition('/')[0]}{_TYPES.guess_extension(kind) or ''}"
    if len(name) > NAME_CHARACTERS:
        stem, _, ending = name.rpartition(".")
        name = f"{stem[: NAME_CHARACTERS - len(ending) - 1]}.{ending}" if len(ending) <= 10 else name[:NAME_CHARACTERS]
    return name


def readable_size(size: int) -> str:
    """`12 MB`, `340 KB`, `17 bytes`."""
    for unit, name in ((1_000_000_000, "GB"), (1_000_000, "MB"), (1000, "KB")):
        if size >= unit:
            return f"{float(f'{size / unit:.3g}'):g} {name}"  # through a number: three digits, and never `1e+03`
    return f"{size} bytes"
