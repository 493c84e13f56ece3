"""Dead letters in bulk: everything that matches, counted before it is done, and done one letter at a time.

Each letter is replayed or dropped as it would be by itself, so a run that was cut short is finished by the next one.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from functools import partial

from shared.errors import CannotDo
from shared.operating.audit import Action, Operator, audited
from shared.operating.dead_letters import drop_letter, replay_letter
from shared.pipeline import Pipeline
from shared.reading.dead_letters import DeadLetter, LetterState, dead_letter_page
from shared.store import Store
from shared.value import value

LOOKED_AT = 10_000  # open letters that a filter is held against
AT_ONCE = 1_000  # letters that one run deals with
PAGE = 500


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

    @property
    def is_empty(self) -> bool:
        return self.kind is None and self.reason is None and self.session_key is None

    def holds(self, letter: DeadLetter) -> bool:
        return (
            self.kind in (None, letter.kind)
            and self.reason in (None, letter.reason)
            and self.session_key in (None, letter.session_key)
        )


@value
class MatchingLetters:
    """The open letters that match, oldest first. Not complete: there are more than were looked at, or than one run takes."""

    ids: tuple[int, ...]
    keys: int  # conversations that they belong to
    complete: bool


@value
class BulkResult:
    """What became of the letters: how many were done, and how many were not, by reason."""

    done: int
    failed: tuple[tuple[str, int], ...]


async def matching_letters(store: Store, wanted: LetterFilter) -> MatchingLetters:
    """What a bulk run would do, before it is done; CannotDo for a filter that names nothing."""
    if wanted.is_empty:
        raise CannotDo("name a kind, a reason or a key: everything at once is never meant")
    found: list[DeadLetter] = []
    looked_at, before = 0, 2**62
    while page := await dead_letter_page(store, LetterState.OPEN, PAGE, before):
        found += [letter for letter in page if wanted.holds(letter)]
        looked_at, before = looked_at + len(page), page[-1].id
        if looked_at >= LOOKED_AT:
            break
    ids = sorted(letter.id for letter in found)
    complete = looked_at < LOOKED_AT and len(ids) <= AT_ONCE
    meant = set(ids[:AT_ONCE])
    return MatchingLetters(
        tuple(ids[:AT_ONCE]), len({letter.session_key for letter in found if letter.id in meant}), complete
    )


async def deal_with_letters(
    pipe: Pipeline, action: LetterAction, ids: tuple[int, ...], operator: Operator
) -> BulkResult:
    """Replay or drop letters, oldest first. Letters that somebody closed meanwhile are counted as failed, and left alone. Each
    letter has a row of its own in the audit log, as it would have by itself."""
    done, failed = 0, Counter[str]()
    for id in ids[:AT_ONCE]:
        work = partial(_deal_with, pipe, action, id)
        try:
            await audited(pipe.store, operator, Action(f"{action.value} dead letter", str(id)), work)
        except CannotDo as error:
            failed[str(error).replace(f" {id}", "")] += 1
        else:
            done += 1
    return BulkResult(done, tuple(failed.most_common(10)))


async def _deal_with(pipe: Pipeline, action: LetterAction, id: int) -> None:
    await (replay_letter(pipe, id) if action is LetterAction.REPLAY else drop_letter(pipe.store, id))
