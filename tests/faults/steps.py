"""The promises about tool calls: what the calls of a run did outside, against what their rows say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby

import orjson

from shared.context.marks import MAY_HAVE_HAPPENED
from tests.faults.evidence import Evidence, Row
from tests.support.scripted import TOOLS, Noted

Step = tuple[str, str]  # the message, and the id of the call


def repeated_steps(evidence: Evidence) -> Iterator[str]:
    """A call that has finished is not made again. A read is not refused to a worker that lost its key: it changes nothing. So
    a read counts as made again only if it ended again, which is refused to such a worker."""
    finished: dict[Step, list[Noted]] = defaultdict(list)
    for note in _noted(evidence, "finished"):
        finished[_step(note)].append(note)
    # Who was paused right before it acts does so late, with the same key: only an attempt that began later repeats it.
    begun = {note.turn: note.at for note in _noted(evidence, "begin")}
    for step, notes in acted(evidence).items():
        ends = finished.get(step, [])
        again = ends[1:] if _effect(notes[0]) == "read" else notes
        if ends and any(begun.get(note.turn, 0.0) > ends[0].at for note in again):
            yield f"{_named(step)}: made again after it had finished"


def effects(evidence: Evidence) -> Iterator[str]:
    """No effect happens twice, unless its row says that it may have happened. A keyed call has one key, and a call whose row
    says that it is done has acted."""
    said = _rows(evidence)
    done = acted(evidence)
    for step, notes in done.items():
        may_have_happened = step in said and _may_have_happened(said[step])
        if _effect(notes[0]) == "write" and len(notes) > 1 and not may_have_happened:
            yield f"{_named(step)}: acted {len(notes)} times"
        if len({note.tool for note in notes}) > 1:
            yield f"{_named(step)}: several keys"
    for step, row in said.items():
        if step not in done and not _may_have_happened(row):
            yield f"{_named(step)}: its row says {row['text']!r}, and it never acted"


def acted(evidence: Evidence) -> dict[Step, list[Noted]]:
    """Each time that a call acted."""
    found: dict[Step, list[Noted]] = defaultdict(list)
    for note in _noted(evidence, "effect"):
        found[_step(note)].append(note)
    return found


def unknown(evidence: Evidence) -> list[Row]:
    """The rows that say of a call that it may have happened."""
    return [row for row in _rows(evidence).values() if _may_have_happened(row)]


def counted(evidence: Evidence) -> dict[str, int]:
    """How many calls there were, by effect, how many acted more than once, and how many may have happened."""
    told: dict[str, int] = {}
    notes = list(acted(evidence).values())
    for effect in TOOLS:
        of_effect = [each for each in notes if _effect(each[0]) == effect]
        told[effect] = len(of_effect)
        told[f"{effect}, more than once"] = sum(len(each) > 1 for each in of_effect)
    return told | {"may have happened": len(unknown(evidence))}


def _rows(evidence: Evidence) -> dict[Step, Row]:
    """The result of each call that a committed turn has."""
    found: dict[Step, Row] = {}
    for _, grouped in groupby(evidence.messages, key=lambda row: row["turn_id"]):
        user, *rows = list(grouped)
        if user["role"] != "user" or user["inbound_id"] not in evidence.accepted:
            continue
        for row in rows:
            if row["role"] == "tool":
                found[user["inbound_id"], orjson.loads(row["data"])["tool_call_id"]] = row
    return found


def _may_have_happened(row: Row) -> bool:
    return bool(orjson.loads(row["data"]).get(MAY_HAVE_HAPPENED))


def _noted(evidence: Evidence, event: str) -> Iterator[Noted]:
    return (note for note in evidence.noted if note.event == event)


def _step(note: Noted) -> Step:
    return note.message, note.tool.split()[0]


def _effect(note: Noted) -> str:
    return note.tool.split()[1]


def _named(step: Step) -> str:
    return " ".join(step)
