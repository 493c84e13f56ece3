"""The verdict line: how the deployment is, in one sentence, with its cause and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from shared.lane_key import CONTROL, DELIVERIES, TURNS
from shared.reading.overview import LaneNow, Overview
from shared.reading.workers import WorkerState
from shared.value import value

SLOW_SECONDS = 5.0  # a ready key that waits longer means that workers are missing
OLD_SECONDS = 10.0  # numbers older than this are no verdict
SUSPENDED = "suspended"  # the state of a worker that `rq suspend` holds back
_WHO_WAITS = {
    TURNS: ("conversation", "conversations"),
    DELIVERIES: ("chat with replies", "chats with replies"),
    CONTROL: ("conversation with commands", "conversations with commands"),
}


class Mood(StrEnum):
    """How bad it is. The words carry it too: no meaning by colour alone."""

    GOOD = "good"
    WARN = "warn"
    BAD = "bad"


@value
class OverallVerdict:
    """One sentence about the whole deployment."""

    mood: Mood
    text: str


def verdict(seen: Overview, now: datetime) -> OverallVerdict:
    """The worst that is true, said with its cause."""
    age = (now - seen.at).total_seconds()
    if age > OLD_SECONDS:
        return OverallVerdict(Mood.BAD, f"These numbers are {age:.0f} s old. What happens now is not known.")
    return _stores(seen) or _workers(seen) or _delayed(seen) or _paused(seen) or _letters(seen) or _well(seen)


def _stores(seen: Overview) -> OverallVerdict | None:
    if seen.stored is not None and not seen.redis_away:
        return None
    some = seen.redis_away < seen.redis_servers
    redis = f"{seen.redis_away} of {seen.redis_servers} Redis servers" if some else "Redis"
    does, they = ("do", "they are") if some and seen.redis_away > 1 else ("does", "it is")
    if seen.stored is None and seen.redis_away:
        refused = "Some new messages" if some and not seen.journaled else "New messages"
        text = f"{redis} and the database do not answer. {refused} are refused until they are back."
    elif seen.stored is None and seen.journaled:
        text = "The database does not answer. New messages are refused with 503, and finished turns wait in memory."
    elif seen.stored is None:
        text = "The database does not answer. New messages wait in Redis, and finished turns in memory."
    elif seen.journaled:
        wait = "those of conversations there wait" if some else "they wait"
        text = f"{redis} {does} not answer. New messages are kept in the journal; {wait}, and nothing is lost."
    else:
        refused = "New messages of conversations there" if some else "New messages"
        text = f"{redis} {does} not answer. {refused} are refused with 503 until {they} back."
    return OverallVerdict(Mood.BAD, text)


def _workers(seen: Overview) -> OverallVerdict | None:
    turns = seen.lane(TURNS)
    alive = [worker for worker in seen.workers if worker.alive]
    if not alive:
        waiting = f", and {_conversations(turns.ready)}" if turns.ready else ""
        return OverallVerdict(Mood.BAD, f"No worker is alive{waiting}: start `keyturn work`.")
    if seen.overdue:
        text = f"{seen.overdue:,} keys are overdue and nobody looks after them: start `keyturn housekeep`."
        return OverallVerdict(Mood.BAD, text)
    if seen.no_housekeeper is not None:
        text = f"{seen.no_housekeeper}: what a crash leaves behind stays there. Start `keyturn housekeep`."
        return OverallVerdict(Mood.WARN, text)
    if all(worker.state == SUSPENDED for worker in alive):
        waiting = f", and {_conversations(turns.ready)}" if turns.ready else ""
        return OverallVerdict(Mood.WARN, f"`rq suspend` holds all workers back{waiting}: `rq resume` lets them go on.")
    slow = (_slow(seen, seen.lane(name), alive, who) for name, who in _WHO_WAITS.items())
    return next((found for found in slow if found is not None), None)


def _slow(seen: Overview, lane: LaneNow, alive: Sequence[WorkerState], who: tuple[str, str]) -> OverallVerdict | None:
    """Whether the keys of a lane wait too long for a worker, and why."""
    waited = (seen.at - lane.ready_since).total_seconds() if lane.ready_since is not None else 0.0
    if not lane.ready or waited <= SLOW_SECONDS:
        return None
    text = f"{_wait(lane.ready, *who)} for a worker, the oldest {waited:.0f} s"
    # a worker of an older version does not say what it serves
    if all(worker.lanes and lane.lane not in [slots.lane for slots in worker.lanes] for worker in alive):
        return OverallVerdict(
            Mood.BAD, f"{text}, and no worker that is alive serves {lane.lane}: start `keyturn work`."
        )
    return OverallVerdict(Mood.WARN, f"{text}: add workers.")


def _delayed(seen: Overview) -> OverallVerdict | None:
    """Whether conversations wait for their next attempt, and why."""
    if (found := seen.delayed) is None:
        return None
    text = _wait(found.keys, *_WHO_WAITS[TURNS])
    their = "its" if found.keys == 1 else "their"
    if found.away_since is not None:
        away = max(0.0, (seen.at - found.away_since).total_seconds())
        why = f"the provider of {their} model has not answered for {away:.0f} s, as `keyturn logs` says"
    elif found.failed:
        why = f"{their} last attempt failed, as `keyturn logs` says"
    else:
        why = f"a limit is reached, or what {'it needs' if found.keys == 1 else 'they need'} is away"
    left = max(0.0, (found.next_at - seen.at).total_seconds())
    begins = "It" if found.keys == 1 else "The first"
    return OverallVerdict(Mood.WARN, f"{text} for {their} next attempt: {why}. {begins} begins in {left:.0f} s.")


def _paused(seen: Overview) -> OverallVerdict | None:
    pauses = len(seen.stored.pauses) if seen.stored is not None else 0
    if not pauses:
        return None
    held = seen.paused
    waiting = "1 key waits" if held == 1 else f"{held:,} keys wait" if held else "nothing waits"
    begun = "A pause is" if pauses == 1 else f"{pauses:,} pauses are"
    return OverallVerdict(Mood.WARN, f"{begun} in force, and {waiting} behind {'it' if pauses == 1 else 'them'}.")


def _letters(seen: Overview) -> OverallVerdict | None:
    if seen.stored is not None and (count := seen.stored.dead_letters).count:
        letters = "1 dead letter waits" if count.count == 1 else f"{count.text} dead letters wait"
        return OverallVerdict(Mood.WARN, f"{letters[:1].upper()}{letters[1:]} for a decision: replay or drop.")
    return None


def _well(seen: Overview) -> OverallVerdict:
    running = seen.lane(TURNS).running
    turns = "No turn runs" if not running else "1 turn runs" if running == 1 else f"{running:,} turns run"
    waits = "nobody waits long" if any(lane.ready for lane in seen.lanes) else "nobody waits"
    return OverallVerdict(Mood.GOOD, f"All is well. {turns}, and {waits} for a worker.")


def _conversations(count: int) -> str:
    return _wait(count, *_WHO_WAITS[TURNS])


def _wait(count: int, one: str, several: str) -> str:
    return f"1 {one} waits" if count == 1 else f"{count:,} {several} wait"
