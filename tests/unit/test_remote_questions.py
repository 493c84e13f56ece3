"""What an isolated process asks its worker, and what the worker makes of it: both sides of the line, without a process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import orjson
import pytest

from keyturn import AgentFault
from shared.agent.events import Call
from shared.agent.steps import BegunStep, Effect, How, LoggedSteps, Stepped
from shared.codec import encode_json
from shared.errors import HeldBack, RateLimited
from shared.messages import Entry
from shared.settings.provider_limits import ProviderLimits
from workers.agents import remote_steps
from workers.agents.frames import LIMIT_BYTES, framed, read_frame
from workers.agents.model.admission import Permit, ProviderAccount
from workers.agents.remote_admission import AdmittedProcess, RemoteAdmission
from workers.agents.remote_line import WorkerLine
from workers.agents.remote_steps import RemoteLog

ACCOUNT = ProviderAccount("a1", "openai", "gpt", ProviderLimits(concurrency=4, requests_per_minute=60))
FIELDS = {"id": "a1", "provider": "openai", "model": "gpt", "limits": {"concurrency": 4}}


@asynccontextmanager
async def line() -> AsyncIterator[tuple[WorkerLine, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A line as the process has it, and the worker's end of it."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    other_reader, other_writer = await asyncio.open_connection(sock=theirs)
    try:
        yield WorkerLine(reader, writer), other_reader, other_writer
    finally:
        writer.close()
        other_writer.close()


async def read(reader: asyncio.StreamReader) -> dict[str, Any]:
    """What the process says next."""
    frame: dict[str, Any] | None = await read_frame(reader)
    assert frame is not None
    return frame


async def test_answers_reach_those_who_asked_in_whatever_order_they_come() -> None:
    async with line() as (asks, reader, writer):
        questions = [asyncio.create_task(asks.ask("step", {"n": n})) for n in range(3)]
        ids = {}
        for _ in questions:
            asked = (await read(reader))["step"]
            ids[asked["n"]] = asked["id"]
        assert len({*ids.values()}) == 3
        questions[1].cancel()
        await asyncio.wait([questions[1]])
        for n in (2, 1, 0):  # the second is answered too, although nobody waits for it any more
            writer.write(framed(encode_json({"id": ids[n], "is": n})))
        assert [(await questions[n])["is"] for n in (0, 2)] == [0, 2]
        later = asyncio.create_task(asks.ask("step", {"n": 3}))
        asked = (await read(reader))["step"]
        writer.write(framed(encode_json({"id": asked["id"], "is": 3})))
        assert (await later)["is"] == 3


async def test_what_needs_no_answer_is_said_without_an_id() -> None:
    async with line() as (says, reader, _):
        says.tell("admission", {"used_up": {}})
        assert await read(reader) == {"admission": {"used_up": {}}}


async def test_a_question_that_is_too_long_is_the_agents_fault_and_is_not_sent() -> None:
    async with line() as (asks, reader, writer):
        with pytest.raises(AgentFault, match="are the most"):
            await asks.ask("step", {"text": "x" * LIMIT_BYTES})
        after = asyncio.create_task(asks.ask("step", {}))
        asked = (await read(reader))["step"]
        writer.write(framed(encode_json({"id": asked["id"]})))
        assert await after == {"id": asked["id"]}


class Direct:
    """A line to the worker's side of admissions: what is said is carried over as JSON."""

    def __init__(self, process: AdmittedProcess) -> None:
        self._process = process
        self.told: list[dict[str, Any]] = []

    async def ask(self, subject: str, what: dict[str, Any]) -> dict[str, Any]:
        assert subject == "admission"
        answer = await self._process.answered(orjson.loads(encode_json({"id": 7, **what})))
        assert answer is not None
        read: dict[str, Any] = orjson.loads(answer)
        assert read.pop("id") == 7
        return read

    def tell(self, subject: str, what: dict[str, Any]) -> None:
        assert subject == "admission"
        self.told.append(orjson.loads(encode_json(what)))

    async def carry(self) -> None:
        """Let the worker hear what was told."""
        for what in self.told:
            assert await self._process.answered(what) is None
        self.told.clear()


class Admitting:
    """An admission that notes what it is asked, and answers so."""

    def __init__(self, answer: Exception | None = None, *, counts: bool = True) -> None:
        self.answer = answer
        self.counts = counts
        self.said: list[tuple[Any, ...]] = []

    async def admit(self, account: ProviderAccount, tokens: int) -> Permit:
        self.said.append(("admit", account, tokens))
        if self.answer is not None:
            raise self.answer
        return Permit(account, f"p{len(self.said)}" if self.counts else "", tokens)

    def leave(self, permit: Permit, tokens: int | None) -> None:
        self.said.append(("leave", permit, tokens))

    async def refuse(self, permit: Permit, asked: timedelta | None) -> timedelta:
        self.said.append(("refuse", permit, asked))
        return timedelta(seconds=12.5)

    def used_up(self, account: ProviderAccount) -> None:
        self.said.append(("used_up", account))


def connected(admission: Admitting | None) -> tuple[RemoteAdmission, Direct, AdmittedProcess]:
    process = AdmittedProcess(admission)
    direct = Direct(process)
    return RemoteAdmission(direct), direct, process  # type: ignore[arg-type]


async def test_a_request_of_an_isolated_turn_is_admitted_and_ended_as_any_other() -> None:
    admission = Admitting()
    remote, direct, process = connected(admission)
    permit = await remote.admit(ACCOUNT, 700)
    assert permit == Permit(ACCOUNT, "p1", 700)
    remote.leave(permit, 650)
    remote.leave(permit, 650)  # once more: nothing is left to give back
    await direct.carry()
    assert admission.said == [("admit", ACCOUNT, 700), ("leave", permit, 650)]
    process.close()
    assert len(admission.said) == 2


@pytest.mark.parametrize("kind", [HeldBack, RateLimited])
async def test_an_isolated_turn_is_told_whose_limit_it_is_that_it_waits_for(kind: type[RateLimited]) -> None:
    remote, _, process = connected(Admitting(kind(timedelta(seconds=3.5))))
    with pytest.raises(RateLimited) as caught:
        await remote.admit(ACCOUNT, 1)
    assert (type(caught.value), caught.value.retry_after) == (kind, timedelta(seconds=3.5))
    assert caught.value.provider == "openai"
    process.close()


@pytest.mark.parametrize("asked", [None, timedelta(0), timedelta(seconds=4)])
@pytest.mark.parametrize("is_open", [True, False])
async def test_a_refusal_by_the_provider_reaches_all_workers(asked: timedelta | None, is_open: bool) -> None:
    admission = Admitting()
    remote, _, _ = connected(admission)
    permit = await remote.admit(ACCOUNT, 700) if is_open else Permit(ACCOUNT, "of another process")
    assert await remote.refuse(permit, asked) == timedelta(seconds=12.5)
    assert admission.said[-1] == ("refuse", permit if is_open else Permit(ACCOUNT), asked)


async def test_an_operator_is_told_of_a_used_up_quota_of_an_isolated_turn() -> None:
    admission = Admitting()
    remote, direct, _ = connected(admission)
    remote.used_up(ACCOUNT)
    await direct.carry()
    assert admission.said == [("used_up", ACCOUNT)]


async def test_what_a_process_had_open_when_it_died_is_given_back_and_what_nobody_counts_is_not() -> None:
    admission = Admitting()
    remote, direct, process = connected(admission)
    first, second = [await remote.admit(ACCOUNT, 10) for _ in range(2)]
    remote.leave(first, None)
    await direct.carry()
    admission.counts = False
    await remote.admit(ACCOUNT, 10)
    process.close()
    assert admission.said[-3:] == [("leave", first, None), ("admit", ACCOUNT, 10), ("leave", second, None)]


@pytest.mark.parametrize(("asked", "waits"), [(None, 1.0), (timedelta(seconds=4), 4.0)])
async def test_where_nobody_counts_requests_are_let_through_and_wait_as_long_as_the_provider_asks(
    asked: timedelta | None, waits: float
) -> None:
    remote, direct, process = connected(None)
    permit = await remote.admit(ACCOUNT, 10)
    assert permit == Permit(ACCOUNT, "", 10)
    assert await remote.refuse(permit, asked) == timedelta(seconds=waits)
    remote.leave(permit, 5)
    remote.used_up(ACCOUNT)
    await direct.carry()
    process.close()


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"id": 1},
        {"id": 1, "admit": {}},
        {"id": 1, "admit": {"account": FIELDS, "tokens": "10"}},
        {"id": 1, "admit": {"account": {}, "tokens": 1}},
        {"id": 1, "admit": {"account": {**FIELDS, "limits": 5}, "tokens": 1}},
        {"id": 1, "admit": {"account": {**FIELDS, "limits": {"concurrency": -1}}, "tokens": 1}},
        {"admit": {"account": FIELDS, "tokens": 1}},
        {"id": 1, "refuse": {"account": FIELDS, "permit": "p1", "asked_s": "soon"}},
        {"id": 1, "refuse": {"account": FIELDS, "permit": 1, "asked_s": 1}},
        {"leave": {"permit": None, "tokens": 1}},
        {"used_up": {"account": {}}},
    ],
)
async def test_a_question_about_admission_that_no_process_of_ours_asks_is_a_fault(asked: Mapping[str, Any]) -> None:
    with pytest.raises(AgentFault, match="unknown frame"):
        await AdmittedProcess(Admitting()).answered(asked)


class Log:
    """Steps that are written down here."""

    def __init__(self, begun: BegunStep | Stepped) -> None:
        self.begun = begun
        self.written: list[Any] = []

    async def response(self, row: Entry) -> None:
        self.written.append(row)

    async def begin(self, call: Call, effect: Effect) -> BegunStep | Stepped:
        self.written.append((call, effect))
        return self.begun

    async def end(self, begun: BegunStep, stepped: Stepped) -> None:
        self.written.append((begun, stepped))


CALL, STEPPED = Call("c1", "shell", '{"a": "é"}'), Stepped("done", False, How.UNKNOWN)


@pytest.mark.parametrize("begun", [BegunStep(3, "key_3"), STEPPED])
async def test_the_steps_of_an_isolated_turn_are_written_down_as_any_others(begun: BegunStep | Stepped) -> None:
    log = Log(begun)

    class Steps:
        async def ask(self, subject: str, what: dict[str, Any]) -> Any:
            assert subject == "step"
            record = orjson.loads(encode_json({"id": 9, **what}))
            return orjson.loads(await remote_steps.answered(record, LoggedSteps(log)))

    remote = RemoteLog(Steps())  # type: ignore[arg-type]
    row = Entry("assistant", "I look", data={"calls": [1]})
    await remote.response(row)
    assert await remote.begin(CALL, Effect.KEYED) == begun
    await remote.end(BegunStep(3, "key_3"), STEPPED)
    assert log.written == [row, (CALL, Effect.KEYED), (BegunStep(3, "key_3"), STEPPED)]


STEPPED_FIELDS = {"text": "x", "ok": True, "how": "ran"}


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"id": 1},
        {"id": 1, "response": "text"},
        {"id": 1, "response": {"text": "without a role"}},
        {"response": {"role": "assistant", "text": "without an id"}},
        {"id": 1, "begin": {"call": {"id": "c1"}, "effect": "read"}},
        {"id": 1, "begin": {"call": {"id": "c1", "name": "a", "arguments": "{}"}, "effect": "magic"}},
        {"id": 1, "end": {"begun": {"n": 1}, "stepped": STEPPED_FIELDS}},
        {"id": 1, "end": {"begun": {"n": 1, "key": "k"}, "stepped": {"text": "x", "ok": True}}},
        {"id": 1, "end": {"begun": {"n": 1, "key": "k"}, "stepped": {**STEPPED_FIELDS, "how": "somehow"}}},
    ],
)
async def test_a_step_that_no_process_of_ours_sends_is_a_fault(asked: Mapping[str, Any]) -> None:
    with pytest.raises(AgentFault, match="unknown step"):
        await remote_steps.answered(asked, LoggedSteps(Log(STEPPED)))
