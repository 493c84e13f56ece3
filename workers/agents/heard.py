"""What an agent has said so far in one turn, and what may follow.

| event | what becomes of it |
|---|---|
| `Row`, `Spent`, `Done` | kept for the commit |
| `Spent` with `partial` | counts if neither a row with usage nor another `Spent` follows; the text said since is added |
| `Notice` | said in the chat before the replies |
| `Delta` | kept as partial text until the next `Row`, in case the turn is cut short |
| `Began`, `Ended` | the order is checked; if the turn is cut short, an open call becomes an interrupted one |
| `Thought` | read, not kept |
| `Restarted` | the partial text is forgotten |
| `Took` | what was said becomes a user's row, and the mail ends with the turn; refused for mail that the inbox did not give |
| `Ask` | kept for the commit; nothing but further ones may follow. What the turn took ends with it |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from shared.agent.events import Ask, Began, Call, Delta, Done, Ended, Notice, Restarted, Row, Spent, Thought, Took
from shared.agent.turn import Result
from shared.context.marks import NAME, TOOL_CALL_ID, USAGE, answers, calls, is_finished, user_row
from shared.context.tokens import estimate
from shared.errors import AgentFault
from shared.messages import Entry, Inbound, Reply

PARTIAL = "partial"  # in a usage: its request has not ended
ROLES = frozenset({"user", "assistant", "tool", "system"})
INTERRUPTED = "(Interrupted: this was running when the user stopped it. It may have had its effect.)"
NOT_RUN = "(Not run: the user stopped this before.)"


class Heard:
    """The events of one turn, folded. `take` raises AgentFault for an event that may not follow."""

    __slots__ = (
        "_asks",
        "_begun",
        "_deltas",
        "_done",
        "_earlier",
        "_ended",
        "_given",
        "_merged",
        "_notices",
        "_open",
        "_rows",
        "_spent",
        "shown",
    )

    def __init__(
        self,
        earlier: Sequence[Entry] = (),
        given: Callable[[str], Inbound | None] | None = None,
        took: Sequence[str] = (),
    ) -> None:
        """`given` finds what the turn's inbox gave; `took` names the mail among the earlier rows."""
        self._rows: list[Entry] = [*earlier]  # the rows of earlier attempts come first: see Turn.rows
        self._earlier = len(earlier)  # and those that the agent did not yield itself
        self._given = given
        self._merged: list[str] = [*took]
        self.shown: list[Entry] = []  # the rows of mail that the agent took, in order
        self._deltas: list[str] = []  # since the last row
        self._notices: list[Reply] = []
        self._spent: list[Mapping[str, Any]] = []
        self._begun: Mapping[str, Any] | None = None  # what a request has cost whose answer has not ended
        self._open: dict[str, Call] = {}  # calls that began, by id
        self._ended: dict[str, str] = {}  # results since the last row that was no result, by the id of the call
        self._done: Done | Result | None = None
        self._asks: list[Ask] = []

    def take(self, event: object) -> None:
        """Fold the next event in."""
        if self._done is not None:
            raise AgentFault(f"the agent yielded {type(event).__name__} after Done")
        if self._asks and type(event) is not Ask:
            raise AgentFault(f"the agent yielded {type(event).__name__} after Ask")
        handle = _HANDLERS.get(type(event))
        if handle is None:
            raise not_an_event(event)
        handle(self, event)

    def take_whole(self, result: Result) -> None:
        """Fold a result in, as if its rows, its usage and its end came one after another."""
        self._take_in(result.took)
        for entry in result.entries:
            self._keep(entry)
        for usage in result.spent:
            self._use(usage)
        for ask in result.asks:
            self._ask(ask)
        if not result.asks:
            self._finish(result)

    def result(self) -> Result:
        """What came of a turn whose events have ended. AgentFault where the last one was neither `Done` nor `Ask`."""
        if self._asks:
            spent = self._spent if self._begun is None else [*self._spent, self._begun]
            asks, took = tuple(self._asks), tuple(self._merged)
            return Result(tuple(self._rows), tuple(self._notices), tuple(spent), asks, took)
        if self._done is None:
            raise AgentFault("the agent ended without Done")
        replies = self._done.replies
        if len(self._rows) == self._earlier:
            finished = [row.text for row in self._rows if is_finished(row)]  # of an earlier attempt, and said now
            self._rows += [Entry("assistant", reply.text) for reply in replies if reply.text not in ("", *finished)]
        spent = self._spent if self._begun is None else [*self._spent, self._begun]
        said = (*self._notices, *replies) if self._notices else replies
        return Result(tuple(self._rows), said, tuple(spent), took=tuple(self._merged))

    def cut_short(self) -> Result:
        """What is kept of a turn that the user stopped: finished rows, a result for every open call, partial text."""
        rows = [*self._rows, *self._missing_results()]
        partial, spent = "".join(self._deltas).strip(), list(self._spent)
        used = _with_output(self._begun, partial) if self._begun is not None else None
        if partial:
            rows.append(Entry("assistant", partial, data={USAGE: used} if used else {}))
        elif used is not None:
            spent.append(used)
        return Result(tuple(rows), (), tuple(spent), took=tuple(self._merged))

    def _missing_results(self) -> list[Entry]:
        """Results for the calls of the last row that made any: a provider refuses a call without one."""
        last = next((n for n in range(len(self._rows) - 1, -1, -1) if self._rows[n].role != "tool"), None)
        if last is None:
            return []
        given = {answers(row) for row in self._rows[last + 1 :]}
        return [
            Entry("tool", self._outcome(call["id"]), data={TOOL_CALL_ID: call["id"], NAME: call["name"]})
            for call in calls(self._rows[last])
            if call["id"] not in given
        ]

    def _outcome(self, call_id: str) -> str:
        return INTERRUPTED if call_id in self._open else self._ended.get(call_id, NOT_RUN)

    def _delta(self, event: Delta) -> None:
        _must_be(str, event.text, "a Delta whose text")
        self._deltas.append(event.text)

    def _thought(self, event: Thought) -> None:
        _must_be(str, event.text, "a Thought whose text")

    def _restart(self, _: Restarted) -> None:
        self._deltas.clear()

    def _notice(self, event: Notice) -> None:
        _must_be(str, event.text, "a Notice whose text")
        self._notices.append(Reply(event.text))

    def _row(self, event: Row) -> None:
        self._keep(event.entry)

    def _keep(self, entry: Entry) -> None:
        _must_be(Entry, entry, "a Row whose entry")
        _must_be(str, entry.text, "a Row whose text")
        if entry.role not in ROLES:
            raise AgentFault(f"the agent yielded a Row with the role {entry.role!r:.40}")
        self._rows.append(entry)
        self._deltas.clear()
        if entry.data.get(USAGE):
            self._begun = None
        if entry.role != "tool":
            self._ended.clear()

    def _spend(self, event: Spent) -> None:
        self._use(event.usage)

    def _use(self, usage: Mapping[str, Any]) -> None:
        _must_be(Mapping, usage, "a Spent whose usage")
        if usage.get(PARTIAL):
            self._begun = usage
        else:
            self._begun = None
            self._spent.append(usage)

    def _begin(self, event: Began) -> None:
        call = event.call
        _must_be(Call, call, "a Began whose call")
        if call.id in self._open:
            raise AgentFault(f"the agent yielded Began twice for the call {_named(call)}")
        self._open[call.id] = call

    def _end(self, event: Ended) -> None:
        call = event.call
        _must_be(Call, call, "an Ended whose call")
        _must_be(str, event.text, "an Ended whose text")
        if self._open.pop(call.id, None) is None:
            raise AgentFault(f"the agent yielded Ended without Began for the call {_named(call)}")
        self._ended[call.id] = event.text

    def _took(self, event: Took) -> None:
        self._take_in(event.inbound_ids)

    def _take_in(self, ids: Sequence[str]) -> None:
        for id in ids:
            said = self._given(id) if self._given is not None and id not in self._merged else None
            if said is None:
                raise AgentFault("the agent yielded Took for mail that its inbox did not give")
            self._merged.append(id)
            self.shown.append(user_row(said))
            self._rows.append(self.shown[-1])
            self._earlier += 1

    def _ask(self, event: Ask) -> None:
        for name, found in (("id", event.id), ("text", event.text)):
            _must_be(str, found, f"an Ask whose {name}")
            if not found:
                raise AgentFault(f"the agent yielded an Ask without {name}")
        if event.id in {ask.id for ask in self._asks}:
            raise AgentFault(f"the agent yielded Ask twice with the id {event.id!r:.40}")
        self._must_be_ended("Ask")
        self._asks.append(event)

    def _finish(self, event: Done | Result) -> None:
        for reply in event.replies:
            _must_be(Reply, reply, "a Done whose reply")
        self._must_be_ended("Done")
        self._done = event

    def _must_be_ended(self, what: str) -> None:
        for call in self._open.values():
            raise AgentFault(f"the agent yielded {what} before Ended of the call {_named(call)}")


def not_an_event(yielded: object) -> AgentFault:
    """The error for something that an agent yielded and that is no event."""
    return AgentFault(f"the agent yielded {type(yielded).__name__}, which is no event")


def _with_output(usage: Mapping[str, Any], said: str) -> dict[str, Any]:
    """The usage of a request that was stopped, with a guess of what it had said by then."""
    input, output = (found if isinstance(found := usage.get(name), int) else 0 for name in ("input", "output"))
    output = max(estimate(said), output)
    return {**usage, "output": output, "total": input + output}


def _must_be(kind: type, found: object, what: str) -> None:
    if not isinstance(found, kind):
        raise AgentFault(f"the agent yielded {what} is {type(found).__name__}, not {kind.__name__}")


def _named(call: Call) -> str:
    return f"{call.id} ({call.name})"


_HANDLERS = cast(
    "dict[type, Callable[[Heard, object], None]]",
    {
        Delta: Heard._delta,
        Thought: Heard._thought,
        Restarted: Heard._restart,
        Notice: Heard._notice,
        Row: Heard._row,
        Spent: Heard._spend,
        Began: Heard._begin,
        Ended: Heard._end,
        Took: Heard._took,
        Ask: Heard._ask,
        Done: Heard._finish,
    },
)
