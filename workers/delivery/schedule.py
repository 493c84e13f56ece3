"""Where the answers of scheduled turns go: a file, and from there every target of the schedule.

A target is told by an announcement whose key is the part's own, so an attempt that is repeated tells nobody twice.
"""

from __future__ import annotations

import re

from shared import log
from shared.announcing import Announcement, TargetOutcome, announce
from shared.clock import iso, now_ms
from shared.errors import Malformed, Undeliverable
from shared.messages import Part, Receipt
from shared.output_file import save_output
from shared.permission import beyond_reach
from shared.pipeline import Pipeline
from shared.platforms.facts import Idempotency
from shared.schedules.schedule import Schedule
from shared.targets import Target, TargetKind

SILENT = frozenset({"[silent]", "(silent)", "."})
_SLOT = re.compile(r".*:([0-9]{1,15})(?:#.*)?")  # of a replayed message, something follows


class ScheduleSender:
    """Passes the answers of scheduled turns on."""

    idempotency = Idempotency.NATIVE  # files and announcements are the same on every try

    def __init__(self, pipe: Pipeline) -> None:
        self._pipe = pipe

    async def send(self, part: Part) -> Receipt:
        """Keep the answer as a file and tell every target. Undeliverable if none could be told; with one that was, the
        others are only reported. A file that cannot be written keeps nothing from its targets."""
        schedule = await self._pipe.store.schedules.find(part.to.chat)
        if schedule is None:
            return Receipt("removed")
        slot = _slot(part)
        saved = await self._save(schedule, part, slot)
        if part.text.strip().lower() in SILENT:
            return Receipt("silent")
        told = await self._tell(schedule, part, slot)
        refused = [each for each in told if each.outcome == "refused"]
        for each in refused:
            log.get().error("target not told", schedule=schedule.id, target=each.target, reason=each.reason)
        wants_file = any(_is_file(target, schedule) for target in schedule.targets)
        if (refused and len(refused) == len(told)) and not (wants_file and saved):
            raise Undeliverable("; ".join(f"{each.target}: {each.reason}" for each in refused))
        if wants_file and not saved and not told:
            raise Undeliverable("the file could not be written")
        return Receipt(", ".join(each.id or each.target for each in told if each.outcome != "refused")[:500])

    async def _tell(self, schedule: Schedule, part: Part, slot: int) -> tuple[TargetOutcome, ...]:
        targets = [target for target in schedule.targets if not _is_file(target, schedule)]
        if schedule.origin is not None and (
            far := beyond_reach(self._pipe.settings, schedule.origin, targets)
        ):  # its owner is no admin any more
            targets = [target for target in targets if target not in far]
            log.get().warning("targets beyond the owner's reach", schedule=schedule.id, targets=len(far))
        if not targets or not part.text.strip():
            return ()
        said = Announcement(part.text, "schedule", part.idempotency_key, schedule.origin, slot)
        try:
            return await announce(self._pipe, said, targets)
        except Malformed as error:
            raise Undeliverable(str(error)) from None

    async def _save(self, schedule: Schedule, part: Part, slot: int) -> bool:
        header = {
            "schedule": schedule.name,
            "id": schedule.id,
            "slot": iso(slot),
            "to": ", ".join(map(str, schedule.targets)),
        }
        try:
            key = part.idempotency_key
            await save_output(self._pipe.settings.data_dir, schedule.id, slot, key, header, part.text)
        except OSError as error:
            log.get().error("output of a schedule not saved", schedule=schedule.id, error=str(error))
            return False
        return True


def _is_file(target: Target, schedule: Schedule) -> bool:
    return target.kind is TargetKind.FILE or (target.kind is TargetKind.ORIGIN and schedule.origin is None)


def _slot(part: Part) -> int:
    """The slot that the turn ran for, as the event id of its message says."""
    found = _SLOT.fullmatch(part.in_reply_to[-1]) if part.in_reply_to else None
    return int(found[1]) if found is not None else now_ms()
