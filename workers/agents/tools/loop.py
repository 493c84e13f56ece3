"""The loop of a turn: ask the model, run the tools that it calls, show it their results, until it answers.

| a response | what follows |
|---|---|
| text | one assistant row, and `Done`; where mail came in meanwhile, the row becomes a step, and the next request follows |
| calls | the row with the calls, then for each call `Began`, `Ended` and its row, and the next request |
| calls that need a person's yes | the others run, then the turn ends with `Ask` for each. The answers take it up. Where nobody can be asked, they do not run |
| calls, cut by the length limit | none runs; the model is told. The second time the turn ends with a plain reason |
| nothing | Transient, or Refused where a content filter ended it |

A turn that reaches a limit ends with a plain reason; in a conversation with an active goal that may go on by itself, it goes on
instead, and only the transcript says so.

Mail in `turn.inbox` is looked for at three places: before a request, which then shows it; before a tool, which then does not
run; and at the end, where it causes one more request.

Rows are yielded as they become final. A turn that is taken up again goes on from the rows of the earlier attempts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from shared.agent.events import Began, Call, Delta, Done, Ended, Event, Notice, Restarted, Row, Spent, Thought, Took
from shared.agent.steps import Stepped
from shared.agent.turn import Turn
from shared.context.marks import NAME, REASONING, TOOL_CALL_ID, TOOL_CALLS, UNREAD, USAGE, answers, calls, is_finished
from shared.context.shared_thread import is_shared, signed
from shared.errors import Permanent, Transient
from shared.messages import Entry, Reply
from shared.session_key import SessionKey
from shared.stages import stage
from workers.agents.model.contract import ModelRefused, Prompt, Response, TooLong
from workers.agents.model.conversation import ModelConversation
from workers.agents.model.fallback import ModelLine
from workers.agents.model.usage import begun, estimated
from workers.agents.tools.approval import Approval, refusal
from workers.agents.tools.ask_user import answer_of, is_question
from workers.agents.tools.going_on import goes_on
from workers.agents.tools.limits import Spending
from workers.agents.tools.toolbox import Toolbox, is_object

CUT = "Not run: your answer reached its length limit before these arguments were whole. Write less at once."
CUT_TWICE = "I stopped: what I wanted to do is too long for one answer of the model."
CAME_IN = "Not run: a message of the user came in before this began."
TAKEN_AT_ONCE, TAKEN_AT_MOST = 3, 5  # messages per request, and requests of a turn that show any
NO_OBJECT = "(no object)"  # stands for arguments that nobody kept, because they were none
LIMIT_REACHED = "Not run: this turn has reached its limit of tool calls."


class Loop:
    """One turn. Used once."""

    def __init__(
        self,
        turn: Turn,
        models: ModelLine,
        talk: ModelConversation,
        tools: Toolbox,
        spending: Spending,
        approval: Approval,
    ) -> None:
        self._turn = turn
        self._models = models
        self._talk = talk
        self._tools = tools
        self._spending = spending
        self._approval = approval
        self._is_asking = False
        self._is_taken_up = False  # the calls of earlier attempts are at hand: they may have begun
        self._place = sum(bool(calls(row)) for row in turn.rows)  # how many responses with calls are steps
        self._rows = _earlier(turn)
        self._was_cut = False
        self._response: Response | None = None
        # A request that is being answered, and its text so far.
        self._unfinished: tuple[Prompt, list[str]] | None = None
        self._takes = 0  # requests that showed mail of the inbox
        self._shown: tuple[str, ...] = ()  # mail that the next request shows
        self._said = [Reply(row.text) for row in turn.rows if is_finished(row)]  # answers behind which more mail came

    async def events(self) -> AsyncIterator[Event]:
        """Raises what the table in workers/agents/llm.py says."""
        self._is_taken_up = True
        async for event in self._run(_unanswered(self._rows)):
            yield event
        self._is_taken_up = False
        if self._is_asking:
            return
        if self._rows and is_finished(self._rows[-1]) and not await self._take_mail():  # the mail behind it has ended
            yield Done(tuple(self._said))
            return
        while not (reason := self._spending.before_request(is_granted=bool(self._shown) or self._has_mail())):
            await self._take_mail()
            async for event in self._ask():
                yield event
            response = self._response
            assert response is not None
            if not response.calls:
                row = self._row(response)
                yield Row(row)
                self._rows.append(row)
                self._said.append(Reply(response.text))
                if await self._take_mail():
                    await self._turn.steps.response(row)
                    continue
                yield Done(tuple(self._said))
                return
            row = self._row(response)
            self._rows.append(row)
            yield Row(row)
            if response.is_cut:
                for event in self._not_run(response.calls, CUT):
                    yield event
                if self._was_cut:
                    reason = CUT_TWICE
                    break
                self._was_cut = True
            elif reason := self._spending.before_calls(len(response.calls)):
                for event in self._not_run(response.calls, LIMIT_REACHED):
                    yield event
                break
            else:
                await self._turn.steps.response(row)
                self._place += 1
                async for event in self._run(response.calls):
                    yield event
                if self._is_asking:
                    return
        is_hidden = reason != CUT_TWICE and await goes_on(self._turn, self._tools)
        yield Row(Entry("assistant", reason))
        yield Done((*self._said, *([] if is_hidden else [Reply(reason)])))

    def _has_mail(self) -> bool:
        return self._turn.inbox.waiting() > 0 and self._takes < TAKEN_AT_MOST

    async def _take_mail(self) -> bool:
        """Let the next request show the mail that came in, if any did. It counts as taken when the model begins to answer."""
        if self._shown or not self._has_mail():
            return bool(self._shown)
        taken = await self._turn.inbox.take(TAKEN_AT_ONCE)
        self._takes += bool(taken)
        self._shown = tuple(inbound.id for inbound in taken)
        self._rows += [self._talk.said(inbound) for inbound in taken]
        return bool(taken)

    async def _ask(self) -> AsyncIterator[Event]:
        """One request. A conversation too long for the model is tried once more with half of its history and short results
        of tools, and one with pictures or thoughts that the provider refuses once more with its text alone. Where the model
        cannot answer anybody, another is asked."""
        while True:
            asked = self._models.now
            try:
                with stage("model", asked.name):
                    async for event in self._streamed():
                        yield event
                return
            except (Transient, Permanent) as error:
                if not self._is_mended(error):
                    await self._models.after(error)
                    self._talk.fit(self._models.now.room)
            for event in self._given_up(asked.name):
                yield event

    def _is_mended(self, error: Transient | Permanent) -> bool:
        """Whether the same model is to be asked once more with less."""
        if isinstance(error, TooLong):
            return self._talk.shorten(self._rows)
        return isinstance(error, ModelRefused) and self._talk.leave_out_blocks()

    def _given_up(self, model: str) -> list[Event]:
        """What is left of a request whose answer had begun: it counts as used, and its text does not count."""
        if self._unfinished is None:
            return []
        (prompt, said), self._unfinished = self._unfinished, None
        used = estimated(model, prompt, "".join(said))
        self._spending.used(used)
        return [Spent(used), *([Restarted()] if said else [])]

    async def _streamed(self) -> AsyncIterator[Event]:
        prompt, model = self._talk.prompt(self._rows), self._models.now
        said: list[str] = []
        async with aclosing(model.stream(prompt)) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                if self._shown:
                    shown, self._shown = self._shown, ()
                    yield Took(shown)
                if isinstance(piece, Response):
                    self._unfinished = None
                    self._spending.used(piece.usage)
                    if _is_empty(piece):  # no row will say what it has used
                        yield Spent(piece.usage)
                    self._response = _checked(piece)
                    return
                if self._unfinished is None:
                    self._unfinished = prompt, said
                    yield Spent(begun(model.name, prompt))
                if piece.thought:
                    yield Thought(piece.thought)
                if piece.text:
                    said.append(piece.text)
                    yield Delta(piece.text)
        raise Transient("the model answered nothing")

    def _row(self, response: Response) -> Entry:
        made = [_written(call) for call in response.calls]
        data: dict[str, Any] = {
            USAGE: response.usage,
            REASONING: response.reasoning,
            **response.marks,
            TOOL_CALLS: made,
        }
        return Entry("assistant", response.text, data={name: value for name, value in data.items() if value})

    def _not_run(self, made: Sequence[Call], why: str) -> list[Event]:
        return [self._told(call, why) for call in made]

    async def _run(self, made: Sequence[Call]) -> AsyncIterator[Event]:
        """Carry calls out: at the same time where all of them only read, one after another otherwise. Their rows come in the
        order of the calls. Those that need a person's yes come last, and where one of them has no answer yet, none of them
        runs: the turn ends with the questions."""
        careful = [call for call in made if self._tools.needs_person(call) and not self._approval.unaskable(call)]
        async for event in self._carry_out([call for call in made if call not in careful]):
            yield event
        if self._has_mail():
            for call in careful:
                yield await self._left_out(call)
            return
        if unasked := [call for call in careful if self._approval.answer(call, self._place) is None]:
            self._is_asking = True
            for reply in self._said:
                yield Notice(reply.text)
            for call in unasked:
                yield self._approval.question(call, self._place)
            return
        async for event in self._carry_out(careful):
            yield event

    async def _carry_out(self, made: Sequence[Call]) -> AsyncIterator[Event]:
        if len(made) > 1 and self._tools.are_reads(made) and not self._has_mail():
            async for event in self._run_at_once(made):
                yield event
            return
        for call in made:
            if self._has_mail():
                yield await self._left_out(call)
                continue
            yield Began(call)
            stepped = await self._outcome(call)
            yield Ended(call, stepped.ok, stepped.text)
            yield self._told(call, stepped.text)

    async def _run_at_once(self, made: Sequence[Call]) -> AsyncIterator[Event]:
        for call in made:
            yield Began(call)
        running = [asyncio.create_task(self._outcome(call)) for call in made]
        try:
            for call, task in zip(made, running, strict=True):
                stepped: Stepped = await task
                yield Ended(call, stepped.ok, stepped.text)
                yield self._told(call, stepped.text)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _left_out(self, call: Call) -> Row:
        """A message came in, so the call is not to run. One of an earlier attempt may have: its step says so."""
        if not self._is_taken_up:
            return self._told(call, CAME_IN)
        return self._told(call, (await self._tools.refused(call, self._turn, CAME_IN)).text)

    async def _outcome(self, call: Call) -> Stepped:
        with stage("tool", call.name):
            return await self._carried_out(call)

    async def _carried_out(self, call: Call) -> Stepped:
        if self._tools.needs_person(call) and (why := self._approval.unaskable(call)):
            return await self._tools.refused(call, self._turn, why)
        said = self._approval.answer(call, self._place)
        if said is not None and is_question(call):
            return await self._tools.answered(call, self._turn, answer_of(said))
        if said is not None and (why := refusal(said)):
            return await self._tools.refused(call, self._turn, why)
        return await self._tools.outcome(call, self._turn)

    def _told(self, call: Call, text: str) -> Row:
        row = Entry("tool", text, data={TOOL_CALL_ID: call.id, NAME: call.name})
        self._rows.append(row)
        return Row(row)


def _earlier(turn: Turn) -> list[Entry]:
    """The rows of earlier attempts, in which what people said meanwhile is shown as when it came in."""
    if all(row.role != "user" for row in turn.rows) or not is_shared(SessionKey.parse(turn.session_key)):
        return list(turn.rows)
    return [signed(row, turn.sender_key) for row in turn.rows]


def _written(call: Call) -> dict[str, Any]:
    """A call as its row keeps it. Providers refuse a history with arguments that are no object."""
    if is_object(call.arguments or "{}"):
        return {"id": call.id, "name": call.name, "arguments": call.arguments or "{}"}
    return {"id": call.id, "name": call.name, "arguments": "{}", UNREAD: True}


def _is_empty(response: Response) -> bool:
    return not response.text and not response.calls


def _checked(response: Response) -> Response:
    """The response with an id of its own for each call, or the error that it is."""
    if _is_empty(response):
        if response.is_filtered:
            raise ModelRefused("the provider's content filter refused to answer")
        raise Transient("the model answered nothing")
    seen: set[str] = set()
    made: list[Call] = []
    for n, call in enumerate(response.calls):
        id = call.id
        while id in seen:  # a made one too may be taken
            id = f"{id}_{n}"
        seen.add(id)
        made.append(replace(call, id=id, name=call.name or "unnamed"))
    return replace(response, calls=tuple(made)) if made else response


def _unanswered(rows: Sequence[Entry]) -> list[Call]:
    """The calls of earlier attempts that have no result yet."""
    last = next((n for n in range(len(rows) - 1, -1, -1) if rows[n].role != "tool"), None)
    if last is None:
        return []
    given = {answers(row) for row in rows[last + 1 :]}
    return [
        Call(call["id"], call["name"], NO_OBJECT if call.get(UNREAD) else call.get("arguments") or "{}")
        for call in calls(rows[last])
        if call["id"] not in given
    ]
