"""What a file is, by its first bytes. What its sender says of it decides only between kinds that begin alike."""

from __future__ import annotations

import codecs

HEAD_BYTES = 512  # of the beginning are enough
UNKNOWN = "application/octet-stream"
_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"%PDF-", "application/pdf"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"#!AMR", "audio/amr"),
    (b"\x1f\x8b", "application/gzip"),
    (b"PK\x03\x04", "application/zip"),
    (b"PK\x05\x06", "application/zip"),
    (b"Rar!", "application/vnd.rar"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"\xd0\xcf\x11\xe0", "application/msword"),
    (b"\x1aE\xdf\xa3", "video/webm"),
    (b"MZ", "application/x-executable"),
    (b"\x7fELF", "application/x-executable"),
    (b"\xcf\xfa\xed\xfe", "application/x-executable"),
    (b"\xca\xfe\xba\xbe", "application/x-executable"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
_BRANDS = {b"heic": "image/heic", b"heix": "image/heic", b"mif1": "image/heic", b"avif": "image/avif"}
_BRANDS |= {b"M4A ": "audio/mp4", b"M4B ": "audio/mp4", b"qt  ": "video/quicktime"}
_ALIKE = {  # kinds that begin with the same bytes
    "audio/ogg": ("audio/", "video/ogg"),
    "video/webm": ("audio/webm", "video/"),
    "video/mp4": ("audio/mp4", "video/"),
    "application/zip": ("application/vnd.", "application/epub+zip"),
    "application/msword": ("application/vnd.",),
}
_TEXTS = ("text/", "application/json", "application/xml")


def sniffed(head: bytes, said: str | None = None) -> str:
    """The type of a file that begins so. `said` is what its sender calls it."""
    said = (said or "").partition(";")[0].strip().lower()
    found = _binary(head)
    if found is not None:
        return said if said.startswith(_ALIKE.get(found, ())) and said else found
    if not _is_text(head):
        return UNKNOWN
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:64].lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "text/html"
    if start.startswith(b"<svg"):
        return "image/svg+xml"
    return said if said.startswith(_TEXTS) else "text/plain"


def _binary(head: bytes) -> str | None:
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12])
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12], "video/mp4")
    if head[:2] in (b"\xff\xfb", b"\xff\xf3", b"\xff\xf2"):
        return "audio/mpeg"
    if head[:2] in (b"\xff\xf1", b"\xff\xf9"):
        return "audio/aac"
    return next((kind for beginning, kind in _BEGINNINGS if head.startswith(beginning)), None)


def _is_text(head: bytes) -> bool:
    """Whether it is UTF-8 so far; the last character may be cut."""
    if b"\0" in head:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True
