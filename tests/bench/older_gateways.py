"""How the older gateways keep their state, made again as small as it goes. Only the writing: no agent, no queue, no locks.

One keeps an index of all sessions in a JSON file and writes it anew for every message (temporary file, fsync, rename).
Another keeps a session's messages in a JSON-lines file and writes all of it at every save (temporary file, rename).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench.board import Sample
from tests.bench.past import TEXT, key_of

LONGEST_SECONDS = 2.0


class SessionIndex:
    def __init__(self, path: Path, sessions: int) -> None:
        self._path = path
        self._entries = {key_of(number): _entry(number) for number in range(sessions)}

    def message(self, number: int) -> None:
        """A message came in: its session was touched, so the index is written."""
        self._entries[key_of(number % len(self._entries))]["updated_at"] = time.time()
        temporary = self._path.with_suffix(".tmp")
        with temporary.open("w") as file:
            json.dump(self._entries, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)


class SessionFile:
    def __init__(self, path: Path, messages: int) -> None:
        self._path = path
        self._messages = [_message("assistant" if n % 2 else "user") for n in range(messages)]

    def message(self, _: int) -> None:
        """A message was answered: both rows join the session, and the session is saved once.

        Two old rows leave it, so that it stays as long as it is meant to be.
        """
        self._messages = [*self._messages[2:], _message("user"), _message("assistant")]
        temporary = self._path.with_suffix(".tmp")
        with temporary.open("w") as file:
            file.write(json.dumps({"_type": "metadata", "key": "webhook:c1"}) + "\n")
            for message in self._messages:
                file.write(json.dumps(message, ensure_ascii=False) + "\n")
        temporary.replace(self._path)


def cost(message: Callable[[int], None], messages: int) -> Sample:
    """What a message costs: as many as asked for, or as two seconds allow."""
    cpu, wall, done = time.process_time(), time.perf_counter(), 0
    while done < messages and (done == 0 or time.perf_counter() - wall < LONGEST_SECONDS):
        message(done)
        done += 1
    return {
        "cpu_ms": 1000 * (time.process_time() - cpu) / done,
        "ms": 1000 * (time.perf_counter() - wall) / done,
    }


def _entry(number: int) -> dict[str, object]:
    origin = {"platform": "webhook", "chat_id": f"c{number}", "chat_type": "dm", "user_id": "u1", "user_name": "Ann"}
    tokens = dict.fromkeys(("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"), 0)
    return {
        "session_key": key_of(number),
        "session_id": f"20260101_000000_{number:08x}",
        "created_at": "2026-01-01T00:00:00",
        "updated_at": 0.0,
        "display_name": "Ann",
        "platform": "webhook",
        "chat_type": "dm",
        "origin": origin,
        **tokens,
        "estimated_cost": 0.0,
        "last_prompt_tokens": 0,
        "memory_flushed": False,
    }


def _message(role: str) -> dict[str, object]:
    return {"role": role, "content": TEXT, "timestamp": "2026-01-01T00:00:00"}
