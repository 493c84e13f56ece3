"""What a file is follows from its first bytes, and its name is made harmless."""

from __future__ import annotations

import pytest

from shared.blobs.sniff import UNKNOWN, sniffed
from tests.support.uploads import a_png
from workers.media.names import NAME_CHARACTERS, file_name, readable_size

WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
FILES = [
    (a_png(), "image/png", "image/png"),
    (a_png(), "text/plain", "image/png"),
    (b"\xff\xd8\xff\xe0\0\x10JFIF", None, "image/jpeg"),
    (b"RIFF\x24\0\0\0WEBPVP8 ", "image/png", "image/webp"),
    (b"RIFF\x24\0\0\0WAVEfmt ", None, "audio/wav"),
    (b"OggS\0\x02", "audio/ogg; codecs=opus", "audio/ogg"),
    (b"\0\0\0\x20ftypisom", "audio/mp4", "audio/mp4"),
    (b"\0\0\0\x20ftypisom", "image/png", "video/mp4"),
    (b"\0\0\0\x20ftypM4A ", None, "audio/mp4"),
    (b"%PDF-1.7\n", None, "application/pdf"),
    (b"PK\x03\x04\x14\0", WORD, WORD),
    (b"PK\x03\x04\x14\0", "image/png", "application/zip"),
    (b"MZ\x90\0", "image/png", "application/x-executable"),
    (b"\x7fELF\x02", None, "application/x-executable"),
    (b"\x1f\x8b\x08\0", "text/plain", "application/gzip"),
    (b'{"a": 1}', "application/json", "application/json"),
    ("Grüße".encode()[:3], None, "text/plain"),  # cut in a character
    (b"<!DOCTYPE html><html>", "image/png", "text/html"),
    (b"  <html><body>sign in", "application/pdf", "text/html"),
    (b"\0\x01\x02\x03", "image/png", UNKNOWN),
    (b"", "image/png", "text/plain"),
]


@pytest.mark.parametrize(("head", "said", "kind"), FILES)
def test_the_first_bytes_decide_and_not_what_the_sender_says(head: bytes, said: str | None, kind: str) -> None:
    assert sniffed(head, said) == kind


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("cat.png", "cat.png"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Windows\\system32\\cmd.exe", "cmd.exe"),
        ("/tmp/x/", "image.png"),
        ("..", "image.png"),
        (None, "image.png"),
        ('a"\r\nx-header: 1.png', "a_x-header_ 1.png"),
        ("\u202egnp.exe", "_gnp.exe"),
        ("Grüße 🎉.txt", "Grüße 🎉.txt"),
    ],
)
def test_the_name_of_a_file_has_no_path_and_nothing_that_acts(said: str | None, kept: str) -> None:
    assert file_name(said, "image/png") == kept


def test_a_file_without_a_name_is_called_after_its_type() -> None:
    assert [file_name("", kind) for kind in ("application/pdf", "text/x-of-our-own")] == ["application.pdf", "text"]


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("x" * 500 + ".png", "x" * (NAME_CHARACTERS - 4) + ".png"),
        ("x" * 500 + "." + "y" * 10, "x" * (NAME_CHARACTERS - 11) + "." + "y" * 10),
        ("x" * 500 + "." + "y" * 11, "x" * NAME_CHARACTERS),  # too long to be an ending
        ("x" * 500, "x" * NAME_CHARACTERS),
        ("x" * (NAME_CHARACTERS - 4) + ".png", "x" * (NAME_CHARACTERS - 4) + ".png"),  # not too long
    ],
)
def test_a_long_name_keeps_its_ending(said: str, kept: str) -> None:
    assert file_name(said, "image/png") == kept and len(kept) <= NAME_CHARACTERS


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (17, "17 bytes"),
        (999, "999 bytes"),
        (1000, "1 KB"),
        (1500, "1.5 KB"),
        (998_600, "999 KB"),
        (999_999, "1000 KB"),
        (1_000_000, "1 MB"),
        (12_000_000, "12 MB"),
        (999_999_999, "1000 MB"),
        (1_000_000_000, "1 GB"),
        (2_500_000_000, "2.5 GB"),
        (1_234_567_890_123, "1230 GB"),
    ],
)
def test_sizes_are_said_as_people_say_them(size: int, said: str) -> None:
    assert readable_size(size) == said
