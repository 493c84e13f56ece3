"""Dead letters in bulk: everything that matches, counted before it is done, and done some letters at a time, oldest first.

Each letter is replayed or dropped as it would be by itself, so a run that was cut short is finished by going on, or by another.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from enum import StrEnum
from functools import partial

from shared.errors import CannotDo, Unavailable
from shared.operating.audit import Action, Operator, audited
from shared.operating.dead_letters import drop_letter, replay_letter
from shared.pipeline import Pipeline
from shared.store import Store
from shared.value import value

AT_ONCE = 50  # letters of one step
REASONS = 10  # that are told apart


class LetterAction(StrEnum):
    """What is to become of letters."""

    REPLAY = "replay"
    DROP = "drop"


@value
class LetterFilter:
    """Which open letters are meant. None: it does not matter. A filter that names nothing is refused."""

    kind: str | None = None
    reason: str | None = None
    session_key: str | None = None

    def check(self) -> None:
        """CannotDo for a filter that names nothing."""
        if self.kind is None and self.reason is None and self.session_key is None:
            raise CannotDo(
                "everything at once is never meant: name a kind, a reason or a key; `keyturn dead list` shows them"
            )


@value
class MatchingLetters:
    """The open letters that match now. Later ones have higher numbers than `newest`."""

    count: int
    conversations: int
    newest: int


@value
class BulkRun:
    """What a run is to do, and how far it has come. Whoever has it can go on, also after a crash: no letter is done twice."""

    action: LetterAction
    wanted: LetterFilter
    newest: int  # no letter behind this one is meant
    count: int  # letters that matched when it began
    after: int = 0  # the last letter that was dealt with
    done: int = 0
    failed: tuple[tuple[str, int], ...] = ()  # letters that could not be dealt with, by reason
    is_over: bool = False
    stopped: str = ""  # why it ended early: a store does not answer

    @property
    def dealt_with(self) -> int:
        return self.done + sum(count for _, count in self.failed)

    @property
    def left(self) -> int:
        """At most so many; those that somebody else closes meanwhile are counted."""
        return 0 if self.is_over else max(0, self.count - self.dealt_with)


async def matching_letters(store: Store, wanted: LetterFilter) -> MatchingLetters:
    """What a bulk run would do, before it is done; CannotDo for a filter that names nothing."""
    wanted.check()
    row = await store.dead.matching(kind=wanted.kind, reason=wanted.reason, session_key=wanted.session_key)
    return MatchingLetters(row["letters"], row["conversations"], row["newest"] or 0)


def bulk_run(action: LetterAction, wanted: LetterFilter, found: MatchingLetters) -> BulkRun:
    """A run that has not begun."""
    return BulkRun(action, wanted, found.newest, found.count, is_over=not found.count)


async def go_on(pipe: Pipeline, run: BulkRun, operator: Operator) -> BulkRun:
    """Deal with the next letters, oldest first. Letters that somebody closed meanwhile are left alone. Each letter has a row of
    its own in the audit log, as it would have by itself. Where a store does not answer, the run says so and how far it came."""
    run.wanted.check()
    about, failed = run.wanted, Counter(dict(run.failed))
    run = replace(run, stopped="")
    try:
        ids = await pipe.store.dead.next_matching(
            kind=about.kind,
            reason=about.reason,
            session_key=about.session_key,
            after=run.after,
            newest=run.newest,
            limit=AT_ONCE + 1,
        )
        for id in ids[:AT_ONCE]:
            action = Action(f"{run.action.value} dead letter", str(id))
            try:
                await audited(pipe.store, operator, action, partial(_deal_with, pipe, run.action, id))
            except CannotDo as error:
                failed[_reason(str(error).replace(f" {id}", ""), failed)] += 1
                run = replace(run, after=id, failed=tuple(failed.most_common()))
            else:
                run = replace(run, after=id, done=run.done + 1)
    except Unavailable as error:
        return replace(run, stopped=str(error))
    return replace(run, is_over=len(ids) <= AT_ONCE)


def _reason(text: str, known: Counter[str]) -> str:
    return text if text in known or len(known) < REASONS else "other reasons"


async def _deal_with(pipe: Pipeline, action: LetterAction, id: int) -> None:
    await (replay_letter(pipe, id) if action is LetterAction.REPLAY else drop_letter(pipe.store, id))
