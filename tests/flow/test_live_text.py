"""The text of answers that are being written, on its way through a real Valkey to whoever waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from redis.asyncio.client import PubSub

from shared import keys
from shared.agent.events import Delta, Event, Restarted, Row, Thought
from shared.agent.turn import Result
from shared.errors import Unavailable
from shared.live_text import LiveRecord, SaidText, SaidThought, TokensUsed, decode_live
from shared.messages import Entry, Terms
from shared.redis_servers import RedisServer
from tests.support.pipe import Rig
from tests.support.stages import begun, hold
from workers.turn.live_text import LiveText


class Watching:
    """Somebody who waits for one answer."""

    def __init__(self, channel: str, pubsub: PubSub) -> None:
        self.channel = channel
        self._pubsub = pubsub

    async def records(self, count: int) -> list[LiveRecord]:
        """The next so many records."""
        found: list[LiveRecord] = []
        async with asyncio.timeout(60):
            while len(found) < count:
                message = await self._pubsub.get_message(ignore_subscribe_messages=True, timeout=1.0)
                if message is not None and (record := decode_live(message["data"])) is not None:
                    found.append(record)
        return found


@asynccontextmanager
async def watching(rig: Rig, message: str) -> AsyncIterator[Watching]:
    channel = keys.live_text(message)
    pubsub = rig.pipe.servers.of_key("k").client.pubsub()
    await pubsub.subscribe(channel)
    try:
        yield Watching(channel, pubsub)
    finally:
        await pubsub.aclose()  # type: ignore[no-untyped-call]


async def test_N92_pieces_of_one_stream_are_joined_up_to_the_next_row_and_pieces_of_two_streams_are_not(
    rig: Rig,
) -> None:
    servers = [rig.pipe.servers.of_key("k")]
    async with watching(rig, "in_a") as one, watching(rig, "in_b") as other:
        first, second = LiveText(servers, one.channel, 1), LiveText(servers, other.channel, 1)
        said: list[Event] = [Delta("Let "), Delta("me "), Delta("look."), Row(Entry("assistant", "Let me look."))]
        for event in [*said, Delta("It "), Thought("hm"), Delta("is.")]:
            first.take(event)
            if isinstance(event, Delta):
                second.take(Delta("x"))
        [of_first] = await one.records(1)
        [of_second] = await other.records(1)
        first.close()
        second.close()
    assert [*of_first.said] == [
        SaidText(0, 0, "Let me look."),
        SaidText(1, 0, "It "),
        SaidThought("hm"),
        SaidText(1, 3, "is."),
    ]
    assert [*of_second.said] == [SaidText(0, 0, "xxxxx")]


def usage(**counts: Any) -> Entry:
    return Entry("assistant", "", data={"usage": counts})


@pytest.mark.parametrize(
    ("entries", "spent", "used"),
    [
        ([Entry("assistant", "hi")], (), None),
        ([usage(input=3, output=2), Entry("assistant", "hi"), usage(input=4)], (), TokensUsed(7, 2)),
        ([usage(input=3, output=2)], ({"input": 10, "output": 20},), TokensUsed(13, 22)),
        ([], ({"input": 1, "output": 1},), TokensUsed(1, 1)),
        ([usage(input=True, output=-5), usage(input="9", output=0)], (), TokensUsed(0, 0)),
        ([Entry("assistant", "hi", data={"usage": "much"})], (), None),
    ],
    ids=["nobody counted", "rows", "and beside rows", "beside rows alone", "no counts", "no usage"],
)
async def test_the_last_record_has_what_was_not_sent_yet_and_what_the_answer_has_used(
    rig: Rig, entries: list[Entry], spent: tuple[dict[str, Any], ...], used: TokensUsed | None
) -> None:
    async with watching(rig, "in_a") as one:
        live = LiveText([rig.pipe.servers.of_key("k")], one.channel, 3)
        tool, answer = Row(Entry("tool", "found")), Row(Entry("assistant", ""))
        for event in (Delta(""), Thought(""), Delta("first"), tool, Delta(" half"), answer):
            live.take(event)
        await asyncio.sleep(0)  # the first text is on its way, and the rest waits for it
        live.take(Delta("second "))
        live.take(Restarted())
        live.take(Delta("anew"))
        result = Result(tuple(entries), spent=spent)
        await live.finish(result)
        found = await one.records(1)
        while not found[-1].is_last:
            found += await one.records(1)
        live.close()
    assert {record.attempt for record in found} == {3}
    assert [said for record in found for said in record.said] == [
        SaidText(0, 0, "first half"),
        SaidText(1, 0, "second "),
        SaidText(2, 0, "anew"),
    ]
    assert [record.usage for record in found[:-1]] == [None] * (len(found) - 1) and found[-1].usage == used


async def test_what_is_closed_shows_nothing_more(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    server, sent = rig.pipe.servers.of_key("k"), list[object]()

    async def never(answer: Any) -> None:
        answer.close()
        sent.append(answer)
        await asyncio.Event().wait()

    monkeypatch.setattr(server, "asked", never)
    live = LiveText([server], "channel", 1)
    live.take(Delta("hello"))
    while not sent:
        await asyncio.sleep(0)
    sending = live._sending
    assert sending is not None
    live.close()
    await asyncio.wait({sending})
    assert sending.cancelled() and live._sending is None


@pytest.mark.parametrize(
    ("away", "complains"), [(Unavailable("away"), False), (TypeError("half a pair"), False), (ValueError("?"), True)]
)
async def test_a_live_text_that_one_server_does_not_take_is_shown_by_the_other_and_costs_no_turn(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, foreseen: Callable[[str], None], away: Exception, complains: bool
) -> None:
    """An error that nobody knows is noted, and the next record is tried again."""
    if complains:
        foreseen("stream")
    server, fails = rig.pipe.servers.of_key("k"), True
    asked = server.asked

    async def first_fails(answer: Any) -> Any:
        nonlocal fails
        if fails:
            fails = False
            answer.close()
            raise away
        return await asked(answer)

    monkeypatch.setattr(server, "asked", first_fails)
    servers: list[RedisServer] = [server, server]
    async with watching(rig, "in_a") as one:
        live = LiveText(servers, one.channel, 1)
        live.take(Delta("hello"))
        await live.finish(Result())
        found = await one.records(2 if complains else 3)
    said = [[text.text for text in record.said if isinstance(text, SaidText)] for record in found]
    assert said == ([[], []] if complains else [["hello"], [], []])


@pytest.mark.parametrize(("terms", "shown"), [(None, False), (Terms(), False), (Terms(is_watched=True), True)])
async def test_only_an_answer_that_somebody_waits_for_is_shown_while_it_is_written(
    rig: Rig, terms: Terms | None, shown: bool
) -> None:
    attempt = await begun(await hold(rig))
    inbound = replace(attempt.mail.inbound, terms=terms)
    live = LiveText.of(replace(attempt, mail=replace(attempt.mail, inbound=inbound), number=2))
    assert (live is not None) is shown
    if live is not None:
        async with watching(rig, inbound.id) as one:
            await live.finish(Result())
            [record] = await one.records(1)
        assert (record.attempt, record.is_last) == (2, True)
