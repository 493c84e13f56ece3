"""Where a stretch of a transcript may begin, and what may stand in it: the rules for writing rows and for showing them.

A provider refuses a tool result without its call, and a call without its result. Either costs itself and nothing around it.
A conversation begins with a user, or with what was sent to them unasked just before: they are probably answering that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from shared.context.marks import BLOCKS, NAME, TOOL_CALL_ID, TOOL_CALLS, answers, calls, is_proactive, is_user
from shared.messages import Entry


def first_user(entries: Sequence[Entry]) -> int | None:
    """Where the first turn begins: at its user row, or at the proactive delivery right before it."""
    start = next((n for n, entry in enumerate(entries) if is_user(entry)), None)
    return start - 1 if start and is_proactive(entries[start - 1]) else start


def last_user(entries: Sequence[Entry]) -> int | None:
    return next((n for n in range(len(entries) - 1, -1, -1) if is_user(entries[n])), None)


def aligned(entries: Sequence[Entry]) -> Sequence[Entry]:
    """From the first turn that begins here, if one does, with calls and results in pairs."""
    rows = paired(entries)
    return rows[first_user(rows) or 0 :]


def paired(entries: Sequence[Entry]) -> list[Entry]:
    """The rows without results that answer no call and without calls that have no result.

    A result answers a call of the row that it follows, with nothing but other results between: no provider takes more.
    """
    rows: list[Entry] = []
    for caller, results in _groups(entries):
        asked = {call["id"] for call in calls(caller)}
        given: dict[str, Entry] = {}
        for result in results:
            if (id := answers(result)) in asked:
                given.setdefault(str(id), result)
        if (kept := _with_calls(caller, given)) is not None:
            rows += (kept, *given.values())
    return rows


def keepable(entries: Sequence[Entry]) -> Sequence[Entry]:
    """The rows of a turn as they may be stored: every tool result answers a call of the turn, and none is answered twice.

    A result without an id gets the id of the one call that it can belong to. Any other result is left out.
    """
    if all(entry.role != "tool" for entry in entries):
        return entries
    rows: list[Entry] = []
    unanswered: dict[str, str] = {}  # the tools' names by the ids of their calls
    for entry in entries:
        unanswered |= {call["id"]: call["name"] for call in calls(entry)}
        if entry.role == "tool":
            if (id := answers(entry) or _only_call(entry, unanswered)) not in unanswered:
                continue
            del unanswered[id]
            entry = replace(entry, data={**entry.data, TOOL_CALL_ID: id})
        rows.append(entry)
    return rows


def _groups(entries: Sequence[Entry]) -> Iterator[tuple[Entry, list[Entry]]]:
    """Every row that is no tool result, with the results right after it. Results before the first such row are left out."""
    caller: Entry | None = None
    results: list[Entry] = []
    for entry in entries:
        if entry.role == "tool":
            results.append(entry)
            continue
        if caller is not None:
            yield caller, results
        caller, results = entry, []
    if caller is not None:
        yield caller, results


def _with_calls(entry: Entry, answered: Collection[str]) -> Entry | None:
    """The row with those of its calls that were answered; None where that leaves nothing to show."""
    if TOOL_CALLS not in entry.data:
        return entry
    kept = list({call["id"]: call for call in calls(entry) if call["id"] in answered}.values())
    data = {**entry.data, TOOL_CALLS: kept}
    if not kept:
        del data[TOOL_CALLS]
        if not entry.text.strip() and not data.get(BLOCKS):
            return None
    return replace(entry, data=data)


def _only_call(result: Entry, unanswered: dict[str, str]) -> str | None:
    name = result.data.get(NAME)
    possible = [id for id, called in unanswered.items() if not name or called == name]
    return possible[0] if len(possible) == 1 else None
