"""What agents are given and what they yield, as values and on the wire."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

import orjson
import pytest

import keyturn
from shared.address import Address
from shared.agent.events import (
    Ask,
    Began,
    Call,
    Delta,
    Done,
    Ended,
    Event,
    Notice,
    Restarted,
    Row,
    Spent,
    Thought,
    Took,
)
from shared.agent.inbox import EmptyInbox
from shared.agent.steps import How, Stepped, UnrecordedSteps
from shared.agent.turn import Said, Speaker, Turn
from shared.agent.wire import decode_event, decode_turn, encode_event, encode_turn
from shared.errors import Malformed, Permanent
from shared.messages import Entry, Inbound, Kind, Media, OwnInbound, Reply, Source, TaskInbound

CALL = Call("c1", "look", '{"at": "it"}')
EVENTS: list[Event] = [
    Delta("Hé"),
    Thought("hm"),
    Restarted(),
    Began(CALL),
    Ended(CALL, False, "no"),
    Notice("wait"),
    Row(Entry("assistant", "a", None, {"tool_calls": [{"id": "c1", "name": "look", "arguments": "{}"}]})),
    Took(("in_1", "in_2")),
    Spent({"input": 3, "cost": "unknown"}),
    Ask("q1", "May I?", ("yes", "no"), timedelta(minutes=5), CALL),
    Ask("q2", "Which?"),
    Done((Reply("a", (Media("https://example.org/a", "image/png", "a"),)), Reply("b"))),
    Done((Reply("c", to=Address("matrix", "", "!room", "t1"), edits="m1"), Reply("d", to=Address("irc", "bot", "#x")))),
    Done(),
]
TURN = Turn(
    "turn_1",
    "agent:main:webhook:dm:c1",
    "ses_1",
    (Entry("user", "before", "in_0", {"sender": "Ann"}),),
    (Inbound("in_1", "e1", Source("webhook", "c1", user="u1"), "now", media=(Media("https://example.org/b"),)),),
    2,
    notes=("It is Monday.",),
    memory=("likes tea",),
    speaker=Speaker("webhook:u=u1", frozenset({"b", "a"}), ("mail",), "Ann·1"),
    run="run_in_1",
    deadline=12.5,
    rows=(Entry("assistant", "earlier"),),
    answers={"q1": Said("yes", "yes", "webhook:u=u1", 7)},
    asking=("run_in_0",),
    asker=Source("webhook", "c1", user="u2"),
)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_comes_back_as_it_was(event: Event) -> None:
    assert decode_event(orjson.loads(encode_event(event))) == event


@pytest.mark.parametrize("turn", [TURN, replace(TURN, deadline=math.inf, answers={}, asker=None, speaker=Speaker())])
def test_a_turn_comes_back_as_it_was_with_steps_and_an_inbox_of_its_own(turn: Turn) -> None:
    back = decode_turn(encode_turn(turn))
    assert back == turn
    assert isinstance(back.steps, UnrecordedSteps) and isinstance(back.inbox, EmptyInbox)


@pytest.mark.parametrize("asked_by", [None, Source("webhook", "c1", user="u1")])
def test_mail_that_nobody_wrote_keeps_its_kind_and_its_asker_on_the_wire(asked_by: Source | None) -> None:
    nobody, own = Source("task", "task_1"), {"purpose": Kind.FIRE, "owned_by": "webhook:u=u1"}
    fire = OwnInbound("in_2", "sch_1:60000", nobody, "news?", **own)  # type: ignore[arg-type]
    task = TaskInbound("in_3", "task_1", nobody, "do", purpose=Kind.TASK, asked_by=asked_by)
    assert decode_turn(encode_turn(replace(TURN, mail=(fire, task)))).mail == (fire, task)


async def test_a_turn_that_crossed_the_wire_gives_its_steps_the_keys_of_its_run() -> None:
    async def key_itself(key: str) -> str:
        return key

    here = await UnrecordedSteps(TURN.run).call(CALL, key_itself)
    assert await decode_turn(encode_turn(TURN)).steps.call(CALL, key_itself) == here


def test_fields_that_only_a_later_version_knows_are_ignored() -> None:
    row = {"role": "assistant", "text": "a", "colour": "red"}
    assert decode_event({"v": 1, "row": row, "mood": "good"}) == Row(Entry("assistant", "a"))
    call = {"id": "c1", "name": "look", "arguments": "{}", "colour": "red"}
    assert decode_event({"began": call}) == Began(Call("c1", "look"))
    record = orjson.loads(encode_turn(TURN))
    for fields in (record, record["turn"], *(record["turn"][name] for name in ("speaker", "answers"))):
        if fields is not record["turn"]["answers"]:
            fields["later"] = 1
    for name in ("history", "mail", "rows"):
        record["turn"][name][0]["later"] = 1
    record["turn"]["answers"]["q1"]["later"] = 1
    assert decode_turn(orjson.dumps(record)) == TURN


@pytest.mark.parametrize("version", [2, 0, "1", None, True])
def test_a_version_from_the_future_is_malformed(version: Any) -> None:
    record = orjson.loads(encode_turn(TURN))
    assert record["v"] == 1 and orjson.loads(encode_event(Delta("a")))["v"] == 1
    with pytest.raises(Malformed, match="version"):
        decode_turn(orjson.dumps({**record, "v": version}))
    with pytest.raises(Malformed, match="version"):
        decode_event({"v": version, "delta": "a"})


@pytest.mark.parametrize("data", [b"", b"[]", b"5", b"{}", b'{"v":1}', b'{"v":1,"turn":[]}', b'{"v":1,"turn":{}}'])
def test_a_record_that_is_no_turn_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        decode_turn(data)


@pytest.mark.parametrize(
    "record",
    [
        *({"delta": 5}, {"notice": None}, {"row": {"role": 1, "text": "a"}}, {"took": [1]}),
        *({"done": [{"text": 1}]}, {"began": {"id": 1, "name": "a"}}),
        *(None, 1, "delta", [], {}, {"delta": "a", "row": {}}, {"shout": "a"}),
        *({"began": "c1"}, {"began": {"id": "c1"}}, {"row": {"text": "a"}}, {"row": None}, {"took": 5}, {"spent": 5}),
        *({"ended": {"call": {}}}, {"ask": {"id": "q"}}, {"ask": None}, {"done": 5}, {"done": [{}]}, {"done": ["a"]}),
        {"done": [{"text": "a", "media": [{"name": "no url"}]}]},
        *({"done": [{"text": "a", "edits": 5}]}, {"done": [{"text": "a", "edits": ["m1"]}]}),
        *(
            {"ask": {"id": "q", "text": "a", "expires_s": 1e30}},
            {"ask": {"id": "q", "text": "a", "expires_s": math.nan}},
        ),
        *({"ask": {"id": "q", "text": "a", "expires_s": "1"}}, {"ask": {"id": "q", "text": "a", "expires_s": [1]}}),
    ],
)
def test_a_record_that_is_no_event_is_malformed(record: Any) -> None:
    with pytest.raises(Malformed):
        decode_event(record)


@pytest.mark.parametrize(
    "event", [Delta("half a pair: \ud83d"), Spent({"model": object()}), Row(Entry("assistant", "", None, {"x": {1}}))]
)
def test_an_event_that_has_no_form_in_json_is_malformed_when_written(event: Event) -> None:
    with pytest.raises(Malformed):
        encode_event(event)


async def test_an_unrecorded_step_runs_and_says_so() -> None:
    keys: list[str] = []

    async def do(key: str) -> str:
        keys.append(key)
        return "done"

    for _ in range(2):
        steps = UnrecordedSteps("run_1")
        await steps.response(Entry("assistant", "", data={"tool_calls": []}))
        assert [await steps.call(CALL, do) for _ in range(2)] == [Stepped("done", True, How.RAN)] * 2
    first, second = keys[:2]
    assert first != second and keys[2:] == [first, second]  # the same again on the next attempt
    await UnrecordedSteps("run_2").call(CALL, do)
    assert keys[4] not in (first, second)
    for turn in (Turn("t", "k", "s", (), ()), Turn("t", "k", "s", (), ())):  # without a run, no key comes twice
        await turn.steps.call(CALL, do)
    assert len(set(keys[4:])) == 3


async def test_a_tools_own_error_is_what_the_model_reads_and_a_decision_is_for_the_pipeline() -> None:
    async def fails(_: str) -> str:
        raise ValueError("no such place")

    async def refuses(_: str) -> str:
        raise Permanent("never")

    steps = UnrecordedSteps("run_1")
    assert await steps.call(CALL, fails) == Stepped("look failed: ValueError: no such place", False, How.RAN)
    with pytest.raises(Permanent):
        await steps.call(CALL, refuses)


async def test_nothing_waits_in_the_inbox_of_a_turn() -> None:
    turn = Turn("t", "k", "s", (), ())
    assert turn.inbox.waiting() == 0 and await turn.inbox.take() == ()
    assert (turn.rows, dict(turn.answers), turn.deadline) == ((), {}, math.inf)


def test_the_public_door_offers_every_event_and_all_that_a_turn_holds() -> None:
    for event in EVENTS:
        assert getattr(keyturn, type(event).__name__) is type(event)
    assert {"Turn", "Result", "Reply", "Event", "Speaker", "Steps", "Inbox", "Said"} <= set(keyturn.__all__)
    assert all(hasattr(keyturn, name) for name in keyturn.__all__)
