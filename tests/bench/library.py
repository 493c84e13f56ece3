"""A database full of talk, for searching: words as common as words are, one owner who said half of it, and many others."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import psycopg

PER_SESSION = 100
WORDS = 20_000
CHARACTERS = 3000  # of Chinese, as many as a newspaper needs
HEAVY = "bench:u=heavy"
_SYLLABLES = [a + b for a in "bdfghklmnprstvwz" for b in ("a", "e", "i", "o", "u", "ai", "en", "or")]
_SESSION = ("id", "session_key", "version", "turn_id", "message_count", "created_at", "updated_at", "owner")
_MESSAGE = ("session_id", "n", "turn_id", "role", "text", "data", "created_at")


@dataclass(frozen=True, slots=True)
class Language:
    """Words and characters, the common ones first."""

    words: tuple[str, ...]
    characters: tuple[str, ...]

    @classmethod
    def made_up(cls) -> Language:
        chance = random.Random(1)
        words = {"".join(chance.choices(_SYLLABLES, k=chance.choice((1, 2, 2, 3, 3, 4)))): None for _ in range(WORDS)}
        return cls(tuple(words), tuple(chr(0x4E00 + n) for n in chance.sample(range(20_000), CHARACTERS)))

    def texts(self, count: int) -> Iterator[str]:
        """Twelve words each; every tenth has a sentence of Chinese instead."""
        chance = random.Random(2)
        common_words = list(accumulate(1 / n for n in range(1, len(self.words) + 1)))
        common_characters = list(accumulate(1 / n for n in range(1, len(self.characters) + 1)))
        for n in range(count):
            if n % 10:
                yield " ".join(chance.choices(self.words, cum_weights=common_words, k=12))
            else:
                yield "".join(chance.choices(self.characters, cum_weights=common_characters, k=20))


def light_owner(number: int) -> str:
    return f"bench:u={number}"


def fill(url: str, language: Language, messages: int) -> None:
    """Sessions of a hundred messages: every other one the heavy owner's, the rest shared by a thousandth as many."""
    sessions = max(messages // PER_SESSION, 2)
    owners = max(sessions // 20, 1)
    texts = language.texts(sessions * PER_SESSION)
    session_rows = (
        (
            f"ses_{n}",
            f"agent:main:bench:dm:c{n}",
            1,
            "past",
            PER_SESSION,
            1,
            n,
            HEAVY if n % 2 else light_owner(n % owners),
        )
        for n in range(sessions)
    )
    message_rows = (
        (f"ses_{n}", row, "past", "user" if row % 2 else "assistant", next(texts), "{}", n)
        for n in range(sessions)
        for row in range(1, PER_SESSION + 1)
    )
    tables = (("sessions", _SESSION, session_rows), ("messages", _MESSAGE, message_rows))
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(Path(url.removeprefix("sqlite:///")), isolation_level=None)) as file:
            file.execute("BEGIN")
            for table, columns, rows in tables:
                marks = ", ".join("?" * len(columns))
                file.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)
            file.execute("COMMIT")
        return
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        for table, columns, rows in tables:
            with cursor.copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN".encode()) as copy:
                for row in rows:
                    copy.write_row(row)
