"""What became of every conversation that was to move in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from keyturn.importing.conversation import OldConversation, Skipped


class Outcome(StrEnum):
    """What became of one conversation."""

    IMPORTED = "imported"
    GROWN = "grown"  # what was said there since the last import was added
    UNCHANGED = "unchanged"  # it is here already
    MOVED_ON = "moved on"  # it has gone on in Keyturn: nothing was written
    DIFFERS = "differs"  # its past was changed there since the last import: nothing was written


@dataclass(slots=True)
class Report:
    """Counts, and a line for everything that somebody may want to look into."""

    dry_run: bool = False
    found: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    rows: int = 0  # written, or to be
    corrupt_lines: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    left: list[dict[str, str]] = field(default_factory=list)  # moved on, or differing
    notes: list[dict[str, str]] = field(default_factory=list)
    shared_chats: set[str] = field(
        default_factory=set
    )  # to be listed in SHARED_CHATS, so that their conversations go on
    remembered: int = 0  # notes of memory files, written or to be
    not_remembered: str | None = None  # why the memory files were left

    def skip(self, skipped: Skipped) -> None:
        """Count a conversation that was not brought along."""
        self.found += 1
        self.corrupt_lines += skipped.corrupt
        self.skipped.append(skipped)

    def settle(self, one: OldConversation, outcome: Outcome, rows: int, note: str | None) -> None:
        """Count a conversation, and note what somebody may want to look into."""
        self.found += 1
        self.corrupt_lines += one.corrupt
        self.outcomes[outcome.value] += 1
        self.rows += rows
        about = {"ref": one.ref, "session_id": one.session_id, "session_key": str(one.key)}
        if outcome in (Outcome.MOVED_ON, Outcome.DIFFERS):
            self.left.append({**about, "reason": outcome.value})
        elif note is not None:
            self.notes.append({**about, "note": note})
        if one.is_current and one.place.needs_sharing is not None:
            self.shared_chats.add(one.place.needs_sharing)

    def as_json(self) -> dict[str, Any]:
        return {
            "dry_run": self.dry_run,
            "found": self.found,
            **{outcome.value.replace(" ", "_"): self.outcomes[outcome.value] for outcome in Outcome},
            "skipped": len(self.skipped),
            "messages": self.rows,
            "corrupt_lines": self.corrupt_lines,
            "memory_notes": self.remembered,
            "memory_left": self.not_remembered,
            "shared_chats": sorted(self.shared_chats),
            "skipped_because": dict(Counter(skipped.reason for skipped in self.skipped).most_common()),
            "skipped_sessions": [{"ref": skipped.ref, "reason": skipped.reason} for skipped in self.skipped],
            "left": self.left,
            "notes": self.notes,
        }
