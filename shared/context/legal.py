"""Where a stretch of a transcript may begin, and what may stand in it: the same rules for replaying, trimming and writing.

A provider refuses a tool result without its call, and a call without its result. A conversation begins with a user, or
with what was sent to him unasked just before: he is probably answering that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shared.context.marks import TOOL_CALLS, answers, declared, is_proactive, is_user
from shared.messages import Entry


def first_user(entries: Sequence[Entry]) -> int | None:
    """Where the first turn begins: at its user row, or at the proactive delivery right before it."""
    start = next((n for n, entry in enumerate(entries) if is_user(entry)), None)
    return start - 1 if start and is_proactive(entries[start - 1]) else start


def last_user(entries: Sequence[Entry]) -> int | None:
    return next((n for n in range(len(entries) - 1, -1, -1) if is_user(entries[n])), None)


def legal_start(entries: Sequence[Entry]) -> int:
    """The first place from which every tool result has its call before it."""
    start, known = 0, set[str]()
    for n, entry in enumerate(entries):
        known.update(declared(entry))
        if entry.role == "tool" and answers(entry) not in known:
            start = n + 1
            known.clear()
    return start


def aligned(entries: Sequence[Entry]) -> Sequence[Entry]:
    """From the first turn that begins here, if one does, and without results that lost their calls."""
    rows = entries[first_user(entries) or 0 :]
    while cut := legal_start(rows):
        rows = rows[cut:]
        rows = rows[first_user(rows) or 0 :]
    return rows


def without_open_calls(entries: Sequence[Entry]) -> list[Entry]:
    """Without the calls that were never answered: a turn was cut short there. A row with nothing else in it goes too."""
    answered = {answers(entry) for entry in entries}
    rows = []
    for entry in entries:
        calls = declared(entry)
        if calls and not answered.issuperset(calls):
            kept = [call for call in entry.data[TOOL_CALLS] if call.get("id") in answered]
            entry = replace(entry, data={**entry.data, TOOL_CALLS: kept})
            if not kept:
                entry = replace(entry, data={key: value for key, value in entry.data.items() if key != TOOL_CALLS})
                if not entry.text.strip():
                    continue
        rows.append(entry)
    return rows


def is_legal(entries: Sequence[Entry]) -> bool:
    """Whether every result follows its call and every call has its result."""
    return legal_start(entries) == 0 and len(without_open_calls(entries)) == len(entries)
