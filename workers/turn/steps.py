"""The steps of a run as its attempts write them down: before a call can have an effect, and when it has ended.

| found by the next attempt | read | keyed | write |
|---|---|---|---|
| done | reused | reused | reused |
| planned | runs | runs | runs |
| begun | runs again | runs again with the same key; if it cannot or may not run any more, as "write" | does not run: the model is told that it may have happened |

A response is written down with the mail that its request showed to the model: the next attempt neither shows it again nor leaves it
to a turn of its own. A finished answer behind which mail came in is a response without calls.

A write waits for a database that is away for as long as the key is ours, as a commit does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import takewhile

from shared import log
from shared.agent.events import Call
from shared.agent.steps import BegunStep, Effect, How, Stepped, step_key
from shared.clock import moment
from shared.context.marks import MAY_HAVE_HAPPENED, NAME, TOOL_CALL_ID, answers, calls, is_finished
from shared.errors import Superseded, Unavailable
from shared.failpoints import reach
from shared.lane import Lease
from shared.messages import Entry
from shared.store.runs import BEGUN, CALL, DONE, LONE, RESPONSE, Hold, RecordedStep, Runs
from workers.agents.heard import NOT_RUN

RETRY_SECONDS = 0.5  # between tries to write while the database is away
LEFT_OUT = "Not run: the turn went on without it."  # what the model reads of a call that never began


class RunLog:
    """What the attempts at one message have done. `Superseded` is raised before any effect that is another worker's to have."""

    def __init__(self, hold: Hold, runs: Runs, lease: Lease, earlier: Sequence[RecordedStep], counted: int) -> None:
        self._hold = hold
        self._runs = runs
        self._lease = lease
        self._steps = {step.n: step for step in earlier}
        self._given: set[int] = set()  # steps that this attempt has asked for
        self._unknown: set[tuple[str | None, str]] = set()  # calls that may have happened: id, and what the model reads
        self.is_open = bool(earlier)  # whether the database may have the run
        self._counted = counted  # the last step whose cost a commit has counted
        self.rows: tuple[Entry, ...] = ()  # what earlier attempts finished
        self.took: tuple[str, ...] = ()  # mail that `rows` show
        self.counted_rows = 0  # of `rows`, from the first on
        if earlier:
            self._take_over(earlier)
        # The rows of mail that the model was shown in this attempt: a list that grows. No method of its reader, which has
        # this log in its turn: the garbage collector would have to find them.
        self.shown: Sequence[Entry] = ()
        self._kept_rows = 0  # how many of those are written down

    def _take_over(self, earlier: Sequence[RecordedStep]) -> None:
        """Find the rows that the steps of earlier attempts stand for."""
        # A commit that counts the cost of steps also keeps what was said before them: that is in the history now.
        earlier = [_without_said(step) if step.n <= self._counted else step for step in earlier]
        last = self._last_response()
        earlier = [self._passed_over(step) if step.n < last else step for step in earlier]
        self.rows = _rows(earlier)
        self.took = tuple(str(row.inbound_id) for step in earlier for row in step.took)
        self.counted_rows = len(_rows([step for step in earlier if step.n <= self._counted]))

    async def response(self, row: Entry) -> None:
        n, shown = self._next(), self.shown
        planned = [RecordedStep(n, RESPONSE, state=DONE, row=row, took=tuple(shown[self._kept_rows :]))]
        self._kept_rows = len(shown)
        for call in calls(row):
            arguments = str(call.get("arguments") or "{}")
            planned.append(RecordedStep(n + len(planned), CALL, call["id"], call["name"], arguments))
        reach("step.before_response")
        await self._add(planned)
        reach("step.after_response")

    async def begin(self, call: Call, effect: Effect) -> BegunStep | Stepped:
        step = self._found(call)
        if step is None:
            step = RecordedStep(self._next(), LONE, call.id, call.name, call.arguments)
            await self._add([step])
        self._given.add(step.n)
        if step.outcome is not None:
            return Stepped(step.outcome.text, step.outcome.ok, How.REUSED)
        if step.state == BEGUN and (effect, step.effect) != (Effect.KEYED, Effect.KEYED):
            return self._may_have_happened(step)
        self._steps[step.n] = replace(step, effect=effect)
        if effect is not Effect.READ:
            reach("step.before_begin")
            await self._kept(lambda: self._runs.begin(self._hold, step.n, effect))
            reach("step.after_begin")
        return BegunStep(step.n, step_key(self._hold.run, step.n))

    async def end(self, begun: BegunStep, stepped: Stepped) -> None:
        effect = self._steps[begun.n].effect or Effect.WRITE
        reach("step.before_end")
        await self._kept(lambda: self._runs.end(self._hold, begun.n, effect, stepped))
        reach("step.after_end")

    @property
    def last(self) -> int:
        """The number of the last step; 0: there is none."""
        return max(self._steps, default=0)

    @property
    def uncounted(self) -> list[Entry]:
        """The rows of steps, of this attempt and those before it, whose cost no commit has counted."""
        return [step.row for step in self._steps.values() if step.row is not None and step.n > self._counted]

    @property
    def answers(self) -> list[Entry]:
        """The finished answers that are steps, and that no commit has kept."""
        return [row for row in self.uncounted if is_finished(row)]

    @property
    def own_answers(self) -> list[Entry]:
        """The same, as far as they answer the run's own message. Behind mail that the run took in, they answer that mail, which ends by
        itself unless a commit ends it with the run."""
        own = takewhile(lambda step: not step.took or step.n <= self._counted, self._steps.values())
        rows = [step.row for step in own]
        return [row for row in self.answers if row in rows]

    def marked(self, rows: Sequence[Entry]) -> Sequence[Entry]:
        """The rows as they are kept: a mark is on the results of calls that may have happened, for traces. No row says of a call that an
        earlier attempt began that it was not run, though this attempt was stopped before it came to it."""
        begun = {step.call_id: step for step in self._steps.values() if self._is_left_begun(step)}
        if begun:
            told: dict[str | None, str] = {id: self._may_have_happened(step).text for id, step in begun.items()}
            last = max((n for n, row in enumerate(rows) if calls(row)), default=len(rows))
            rows = [
                replace(row, text=told[answers(row)])
                if n > last and row.text == NOT_RUN and answers(row) in told
                else row
                for n, row in enumerate(rows)
            ]
        if not self._unknown:
            return rows
        return [
            replace(row, data={**row.data, MAY_HAVE_HAPPENED: True})
            if (answers(row), row.text) in self._unknown
            else row
            for row in rows
        ]

    def effects(self) -> list[str]:
        """The names of the tools whose calls this and earlier attempts began and that change something, in order."""
        begun = [step for _, step in sorted(self._steps.items()) if step.effect not in (None, Effect.READ)]
        return [step.name for step in begun]

    def _next(self) -> int:
        return self.last + 1

    def _last_response(self) -> int:
        return max((step.n for step in self._steps.values() if step.kind == RESPONSE), default=0)

    def _passed_over(self, step: RecordedStep) -> RecordedStep:
        """A call of an earlier response that nobody saw end: the model was told why when the run went on, and must not forget it."""
        if step.kind != CALL or step.outcome is not None:
            return step
        told = self._may_have_happened(step) if step.state == BEGUN else Stepped(LEFT_OUT, ok=False, how=How.SKIPPED)
        return replace(step, outcome=told)

    def _is_left_begun(self, step: RecordedStep) -> bool:
        """Whether an earlier attempt began the call, nobody saw it end, and this attempt did not come as far."""
        is_begun = step.kind == CALL and step.state == BEGUN and step.outcome is None
        return is_begun and step.n > self._last_response() and step.n not in self._given

    def _found(self, call: Call) -> RecordedStep | None:
        """The step of a call: one of the last response, or one without a response that an earlier attempt made."""
        last = self._last_response()
        for step in self._steps.values():
            if step.n in self._given or (step.call_id, step.name) != (call.id, call.name):
                continue
            if (step.kind == CALL and step.n > last) or (step.kind == LONE and step.arguments == call.arguments):
                return step
        return None

    def _may_have_happened(self, step: RecordedStep) -> Stepped:
        log.get().warning("step not repeated", key=self._hold.session_key, run=self._hold.run, tool=step.name)
        at = moment(step.begun_at or 0).strftime("%Y-%m-%d %H:%M:%S UTC")
        text = (
            f"{step.name} may have happened: it was begun at {at}, and nobody saw how it ended. It was not run again. "
            "Find out whether it happened before you do it again."
        )
        self._unknown.add((step.call_id, text))
        return Stepped(text, ok=False, how=How.UNKNOWN)

    async def _add(self, steps: Sequence[RecordedStep]) -> None:
        self._steps |= {step.n: step for step in steps}
        self.is_open = True
        await self._kept(lambda: self._runs.add(self._hold, steps))

    async def _kept(self, write: Callable[[], Awaitable[bool]]) -> None:
        """Write, however long the database is away, while the key is ours. Writing twice is writing once."""
        while True:
            try:
                if not await write():
                    raise Superseded(self._hold.session_key)
                return
            except Unavailable as error:
                if self._lease.lost:
                    raise
                log.get().warning("step waits for the database", key=self._hold.session_key, error=str(error))
            await asyncio.sleep(RETRY_SECONDS)


def _without_said(step: RecordedStep) -> RecordedStep:
    """The step without what people said before it, and without the answer that it is, if it is one."""
    is_answer = step.row is not None and is_finished(step.row)
    return replace(step, took=(), row=None if is_answer else step.row)


def _rows(steps: Sequence[RecordedStep]) -> tuple[Entry, ...]:
    """The rows that finished steps stand for. A call without a response has none."""
    rows: list[Entry] = []
    for step in steps:
        if step.row is not None:
            rows += (*step.took, step.row)
        elif step.kind == CALL and step.outcome is not None:
            rows.append(Entry("tool", step.outcome.text, data={TOOL_CALL_ID: step.call_id, NAME: step.name}))
    return tuple(rows)
