"""What fakes of platforms are given: forms with files, read by Python's own parser, and files that are pictures."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from pathlib import Path

from shared.blobs.directory import DirectoryBlobs
from shared.platforms.facts import Facts
from workers.media.outgoing import Uploads


@dataclass(frozen=True, slots=True)
class Uploaded:
    name: str
    type: str
    content: bytes


def parse_form(content_type: str, body: bytes) -> tuple[dict[str, str], dict[str, Uploaded]]:
    """The fields and the files of a form."""
    form = message_from_bytes(b"content-type: " + content_type.encode() + b"\r\n\r\n" + body)
    assert form.is_multipart() and not form.defects
    fields: dict[str, str] = {}
    files: dict[str, Uploaded] = {}
    for part in form.get_payload():
        assert isinstance(part, Message)
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        assert isinstance(name, str) and isinstance(content, bytes)
        if (called := part.get_filename()) is not None:
            files[name] = Uploaded(called, part.get_content_type(), content)
        else:
            fields[name] = content.decode()
    return fields, files


def a_png(size: int = 0, mark: bytes = b"a") -> bytes:
    """A picture of one pixel, of about `size` bytes: the rest is in a chunk that viewers pass over."""
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)), (b"juNk", mark * max(size - 80, 1))]
    chunks += [(b"IDAT", zlib.compress(b"\0\0")), (b"IEND", b"")]
    written = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(written)


class FilesSent(dict[str, bytes]):
    """What people sent, by id or path. A file that no test has put here is a small picture, unless it is called gone."""

    def __missing__(self, id: str) -> bytes:
        if "gone" in id:
            raise KeyError(id)
        return a_png()

    def __contains__(self, id: object) -> bool:
        return super().__contains__(id) or "gone" not in str(id)


def no_files(facts: Facts) -> Uploads:
    """For senders in tests that send no files of ours."""
    return Uploads(DirectoryBlobs(Path("none")), facts)
