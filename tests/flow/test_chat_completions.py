"""POST /v1/chat/completions: OpenAI's form in front of the same pipeline, through a real server, Valkey and a worker."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

from producers.api.chat import answer
from shared.address import Address
from shared.agent.events import Ask, Call
from shared.agent.turn import Result, Turn
from shared.blobs.contract import SHARDS
from shared.door import accept
from shared.embedded import child
from shared.errors import Permanent
from shared.failpoints import Injected
from shared.messages import Reply, Terms
from shared.pipeline import Pipeline, open_pipeline
from shared.platforms.api import ApiSettings, NamedKey
from shared.settings import MediaSettings, NamedAgent, RoutingRule, Settings
from tests.store.books import ask
from tests.support.chat import PATH, SECONDS, USAGE, Caller, Led, a_request, text_of
from tests.support.door import open_door, served
from tests.support.outage import start_process
from tests.support.pipe import Rig, an_inbound
from tests.support.uploads import a_png
from tests.support.working import working
from workers.agents.contract import Agent, Answers
from workers.agents.functions import FunctionAgent, GeneratorAgent
from workers.turn import live_text
from workers.upkeep import stateless as duty
from workers.upkeep.stateless import EndedRequests

MakeSettings = Callable[..., Settings]
KEYED = "agent:main:api:dm:chat-1"


@asynccontextmanager
async def calling(pipe: Pipeline, agent: Agent | Answers | None = None) -> AsyncIterator[Caller]:
    async with served(pipe) as door, working(pipe, agent):
        yield Caller(door)


async def words_left(pipe: Pipeline) -> list[str]:
    """What is in the tables that hold words."""
    found = []
    for table, column in (("inbox", "payload"), ("outbox", "payload"), ("messages", "text"), ("dead", "payload")):
        found += [row["word"] for row in await ask(pipe.store, f"SELECT {column} AS word FROM {table}")]
    return [word for word in found if word]


async def nobody_waits(pipe: Pipeline) -> None:
    """Until no request listens to what becomes of it."""
    async with asyncio.timeout(SECONDS):
        for server in pipe.servers.all:
            while await server.client.pubsub_channels("kt:events:*"):
                await asyncio.sleep(0.01)


# In one piece.


async def test_a_completion_in_one_piece_is_the_agents_answer_in_openais_form(pipe: Pipeline) -> None:
    led = Led()
    led.end("hi there")
    async with calling(pipe, led) as caller:
        response = await caller.ask(a_request("hello"))
    body = response.json()
    assert response.status_code == 200 and body["id"].startswith("chatcmpl-") and isinstance(body["created"], int)
    assert (body["object"], body["model"]) == ("chat.completion", "main")
    [choice] = body["choices"]
    assert (choice["message"]["role"], choice["message"]["content"]) == ("assistant", "hi there")
    assert choice["finish_reason"] == "stop" and "tool_calls" not in choice["message"]
    assert body["usage"] == {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


async def test_an_answer_whose_tokens_nobody_counted_is_estimated_and_not_free(pipe: Pipeline) -> None:
    async with calling(pipe) as caller:
        usage = (await caller.ask(a_request("hello"))).json()["usage"]
    assert usage["prompt_tokens"] > 0 and usage["completion_tokens"] > 0
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


# Streamed.


async def test_a_stream_begins_at_once_shows_text_before_the_turn_has_ended_and_ends_with_usage(pipe: Pipeline) -> None:
    led = Led()
    async with calling(pipe, led) as caller:
        asked = a_request("hello", stream_options={"include_usage": True})
        async with caller.stream(asked) as chunks:
            assert chunks.response.headers["content-type"].startswith("text/event-stream")
            first = await chunks.next()
            assert first is not None and first["choices"][0]["delta"]["role"] == "assistant"
            led.think("hm")
            thought = await chunks.next()
            assert thought is not None and thought["choices"][0]["delta"] == {"reasoning_content": "hm"}
            led.say("one ")
            assert await chunks.text() == "one "
            led.say("two")
            assert await chunks.text() == "two"
            led.end("one two three")
            *rest, last, usage = await chunks.rest()
    assert text_of(rest) == " three"
    assert (last["choices"][0]["delta"], last["choices"][0]["finish_reason"]) == ({}, "stop")
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], USAGE["total"])
    assert {chunk["id"] for chunk in (first, *rest, last, usage)} == {first["id"]}
    assert all(chunk["object"] == "chat.completion.chunk" for chunk in (first, *rest, last, usage))


@pytest.mark.parametrize("point", ["stream.before_write", "stream.after_write"])
async def test_a_stream_that_breaks_where_it_is_written_is_made_good_by_the_finished_answer(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, point: str, foreseen: Callable[[str], None]
) -> None:
    foreseen("stream")
    reached = asyncio.Event()

    def broken(here: str) -> None:
        if here == point and not reached.is_set():
            reached.set()
            raise Injected(point)

    monkeypatch.setattr(live_text, "reach", broken)
    led = Led()
    async with calling(pipe, led) as caller, caller.stream(a_request()) as chunks:
        led.say("one ")
        await reached.wait()
        led.say("two")
        led.end("one two")
        assert text_of(await chunks.rest()) == "one two"


async def test_a_stream_stays_alive_while_the_turn_waits(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "KEEP_ALIVE_SECONDS", 0.01)
    monkeypatch.setattr(answer, "LOOK_SECONDS", 0.01)
    async with served(pipe) as door, Caller(door).stream(a_request()) as chunks:
        await chunks.next()
        reading = asyncio.create_task(chunks.next())  # nobody works yet, so no chunk can come
        await door.until(lambda: chunks.comments > 2)
        async with working(pipe):
            await reading
            assert text_of([chunk for chunk in (reading.result(),) if chunk] + await chunks.rest()) == "echo: hello"


async def test_without_being_asked_for_usage_a_stream_has_no_chunk_without_choices(pipe: Pipeline) -> None:
    async with calling(pipe) as caller, caller.stream(a_request()) as chunks:
        assert all(chunk["choices"] for chunk in await chunks.rest())


async def test_the_text_before_a_tool_call_is_shown_and_the_answer_follows_it_whole(pipe: Pipeline) -> None:
    led = Led()
    async with calling(pipe, led) as caller, caller.stream(a_request()) as chunks:
        led.say("Let me look.")
        assert await chunks.text() == "Let me look."
        led.row("Let me look.")
        led.say("It is ")
        assert await chunks.text() == "\n\nIt is "
        led.end("It is 42.")
        assert text_of(await chunks.rest()) == "42."


async def test_an_answer_that_begins_again_is_shown_whole_behind_what_was_shown_of_the_first(pipe: Pipeline) -> None:
    led = Led()
    async with calling(pipe, led) as caller, caller.stream(a_request()) as chunks:
        led.say("The first half of ")
        assert await chunks.text() == "The first half of "
        led.restart()
        led.say("It is ")
        assert await chunks.text() == "\n\nIt is "
        led.end("It is 42.")
        assert text_of(await chunks.rest()) == "42."


# Without a conversation.


@pytest.mark.parametrize("durability", ["journal", "redis"])
async def test_a_stateless_turn_runs_on_what_was_sent_and_leaves_usage_and_no_words(
    make_settings: MakeSettings, durability: str
) -> None:
    async with open_pipeline(make_settings(durability=durability)) as pipe:
        await _leaves_no_words(pipe)


async def _leaves_no_words(pipe: Pipeline) -> None:
    led = Led()
    led.end("fine")
    asked = a_request("one", "two", "three")
    asked["messages"].insert(0, {"role": "system", "content": "Be kind."})
    async with calling(pipe, led) as caller:
        assert (await caller.ask(asked)).json()["choices"][0]["message"]["content"] == "fine"
        [turn] = led.turns
        assert [(row.role, row.text) for row in turn.history] == [("user", "one"), ("assistant", "two")]
        assert (turn.instructions, [mail.text for mail in turn.mail]) == ("Be kind.", ["three"])
        assert turn.memory == ()
        stored = await caller.door.stored()
        assert {name: stored[name] for name in ("sessions", "messages", "outbox", "routes", "dead")} == dict.fromkeys(
            ("sessions", "messages", "outbox", "routes", "dead"), 0
        )
        assert await words_left(pipe) == []
        assert (stored["inbox"], (await pipe.store.usage.of_all()).total) == (1, USAGE["total"])


async def test_a_stateless_turn_that_would_ask_a_person_is_refused_and_leaves_no_words(pipe: Pipeline) -> None:
    async def asks(turn: Turn) -> Any:
        await turn.steps.call(Call("c1", "look", "{}"), lambda key: asyncio.sleep(0, "private"))
        yield Ask("q", "Is it private?")

    async with calling(pipe, GeneratorAgent(asks)) as caller:
        answered = await caller.ask(a_request("a private thing"))
        assert "cannot wait for one" in answered.json()["choices"][0]["message"]["content"]
        for table in ("asks", "runs", "steps", "facts"):
            assert await ask(pipe.store, f"SELECT * FROM {table}") == []
        assert await words_left(pipe) == []


async def test_a_stateless_request_is_no_command_whatever_it_says(pipe: Pipeline) -> None:
    async with calling(pipe) as caller:
        for text in ("/stop", "/new", "/status", "/help"):
            assert (await caller.ask(a_request(text))).json()["choices"][0]["message"]["content"] == f"echo: {text}"


async def test_a_caller_that_leaves_ends_a_stateless_turn_and_a_housekeeper_forgets_it(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    led = Led()
    async with calling(pipe, led) as caller:
        async with caller.stream(a_request("secret words")) as chunks:
            led.say("half")
            assert await chunks.text() == "half"
        await asyncio.wait_for(led.stopped.wait(), 60)
        await nobody_waits(pipe)
        while not await pipe.store.stateless.ended(older_than_ms=-60_000, limit=10):
            await asyncio.sleep(0.01)
        monkeypatch.setattr(duty, "AFTER_MS", -60_000)
        await EndedRequests(pipe).look()
        assert await words_left(pipe) == []
        assert (await caller.door.stored())["sessions"] == 0


async def test_a_caller_that_leaves_before_an_answer_in_one_piece_ends_a_stateless_turn(pipe: Pipeline) -> None:
    led = Led()
    async with calling(pipe, led) as caller:
        asking = asyncio.create_task(caller.ask(a_request()))
        await led.has_begun()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await asyncio.wait_for(led.stopped.wait(), 60)
        await nobody_waits(pipe)


async def test_what_a_forgotten_turn_said_elsewhere_is_still_sent_there(pipe: Pipeline, rig: Rig) -> None:
    class Elsewhere:
        async def run(self, turn: Turn) -> Result:
            return Result((), (Reply("here"), Reply("there", to=Address("webhook", "", "c2"))))

    rig.agent = Elsewhere()
    accepted = await accept(pipe, replace(an_inbound(platform="api"), terms=Terms(history=())))
    await rig.run_turns(accepted.session_key)
    await pipe.store.stateless.forget(accepted.id)
    assert [row["destination"] for row in await ask(pipe.store, "SELECT destination FROM outbox")] == ["to:webhook:c2"]


async def test_a_message_of_another_kind_is_not_forgotten(pipe: Pipeline, rig: Rig) -> None:
    accepted = await rig.accept("hello")
    await rig.run_turns()
    await pipe.store.stateless.forget(accepted.id)
    assert await rig.transcript() == ["hello", "echo: hello"]
    assert len(await words_left(pipe)) == 4


# With a conversation.


@pytest.mark.parametrize(
    ("headers", "metadata", "chat"),
    [
        ({"x_keyturn_session": "a", "x_openwebui_chat_id": "b", "x_conversation_id": "c"}, "d", "a"),
        ({"x_openwebui_chat_id": "b", "x_conversation_id": "c"}, "d", "b"),
        ({"x_conversation_id": "c"}, "d", "c"),
        ({}, "d", "d"),
    ],
)
async def test_a_conversation_is_found_by_header_or_metadata_and_only_the_last_message_is_mail(
    pipe: Pipeline, headers: dict[str, str], metadata: str, chat: str
) -> None:
    asked = a_request("one", "whatever the front end shows", "two", metadata={"conversation_id": metadata}, user="u1")
    key = f"agent:main:api:dm:{chat}"
    async with calling(pipe) as caller:
        first = await caller.ask(a_request("one", metadata={"conversation_id": metadata}), **headers)
        assert first.status_code == 200
        await caller.ask(asked, **headers)
        assert await Rig(pipe).transcript(key) == ["one", "echo: one", "two", "echo: two"]


async def test_without_a_name_for_it_two_chats_that_begin_alike_are_two(pipe: Pipeline) -> None:
    led = Led()
    async with calling(pipe, led) as caller:
        for _ in range(2):
            led.end("x")
            await caller.ask(a_request("hi", user="u1"))
    first, second = led.turns
    assert first.session_key != second.session_key and not first.history and not second.history


async def test_a_temporary_chat_of_open_webui_is_not_kept(pipe: Pipeline) -> None:
    async with calling(pipe) as caller:
        await caller.ask(a_request("private"), x_openwebui_chat_id="local:abc")
        assert await words_left(pipe) == []


async def test_a_turn_of_a_conversation_goes_on_when_its_caller_leaves(pipe: Pipeline) -> None:
    led = Led()
    async with calling(pipe, led) as caller:
        async with caller.stream(a_request(), x_keyturn_session="chat-1") as chunks:
            led.say("half")
            assert await chunks.text() == "half"
        await nobody_waits(pipe)
        led.end("half and half")
        while await Rig(pipe).transcript(KEYED) != ["hello", "half and half"]:
            await asyncio.sleep(0.01)
    assert not led.stopped.is_set()


async def test_stop_reaches_the_turn_of_a_conversation_from_another_request(pipe: Pipeline) -> None:
    led = Led()
    async with calling(pipe, led) as caller, caller.stream(a_request(), x_keyturn_session="chat-1") as chunks:
        led.say("half")
        assert await chunks.text() == "half"
        stopped = await caller.ask(a_request("/stop"), x_keyturn_session="chat-1")
        assert stopped.json()["choices"][0]["message"]["content"] == "Stopped: 1 message."
        assert (await chunks.rest())[-1]["choices"][0]["finish_reason"] == "stop"


async def test_a_request_that_is_repeated_under_its_idempotency_key_is_one_turn(pipe: Pipeline) -> None:
    about = {"x_keyturn_session": "chat-1", "idempotency_key": "once"}
    async with calling(pipe) as caller:
        first, again = [(await caller.ask(a_request(), **about)).json()["choices"] for _ in range(2)]
        assert first == again and await Rig(pipe).transcript(KEYED) == ["hello", "echo: hello"]


async def test_an_idempotency_key_that_another_conversation_used_brings_nobody_its_answer(pipe: Pipeline) -> None:
    async with calling(pipe) as caller:
        for chat in ("chat-1", "chat-2"):
            answer = await caller.ask(a_request(f"I am {chat}"), x_keyturn_session=chat, idempotency_key="once")
            assert answer.json()["choices"][0]["message"]["content"] == f"echo: I am {chat}"


async def history_of(pipe: Pipeline, *requests: tuple[str, ...]) -> list[list[str]]:
    """What the agent saw before each of these requests of one conversation."""
    led = Led()
    async with calling(pipe, led) as caller:
        for n, said in enumerate(requests):
            led.end(f"answer {n}")
            assert (await caller.ask(a_request(*said), x_keyturn_session="chat-1")).status_code == 200
    return [[row.text for row in turn.history] for turn in led.turns]


async def test_a_message_that_is_asked_again_takes_back_what_followed_it(pipe: Pipeline) -> None:
    again = ("one", "answer 0", "two")
    *_, second, third, fourth = await history_of(
        pipe, ("one",), again, again, ("one", "answer 0", "two", "answer 2", "three")
    )
    assert second == third == ["one", "answer 0"]
    assert fourth == ["one", "answer 0", "two", "answer 2"]


async def test_a_message_that_was_changed_takes_back_what_followed_it(pipe: Pipeline) -> None:
    *_, last = await history_of(
        pipe,
        ("one",),
        ("one", "answer 0", "two"),
        ("one", "answer 0", "two", "answer 1", "three"),
        ("one", "answer 0", "another two"),
        ("one", "answer 0", "another two", "answer 3", "four"),
    )
    assert last == ["one", "answer 0", "another two", "answer 3"]


@pytest.mark.parametrize("shown", [("three",), ("two", "answer 1", "three"), ("else", "answer 0", "three")])
async def test_a_sender_that_shows_only_some_of_the_conversation_takes_nothing_back(
    pipe: Pipeline, shown: tuple[str, ...]
) -> None:
    *_, last = await history_of(pipe, ("one",), ("one", "answer 0", "two"), shown)
    assert last == ["one", "answer 0", "two", "answer 1"]


async def test_two_keys_with_the_same_conversation_id_do_not_meet(make_settings: MakeSettings) -> None:
    named = {name: NamedKey(secrets=(SecretStr(f"{name}-key-0123456789"),)) for name in ("shop", "other")}
    led = Led()
    async with open_pipeline(make_settings(api=ApiSettings(named_keys=named))) as pipe, calling(pipe, led) as caller:
        for name in named:
            led.end(f"for {name}")
            asked = a_request(f"secret of {name}")
            await Caller(caller.door, f"{name}-key-0123456789").ask(asked, x_keyturn_session="c1")
            assert await Rig(pipe).transcript(f"agent:main:api@{name}:dm:c1") == [f"secret of {name}", f"for {name}"]
    assert [len(turn.history) for turn in led.turns] == [0, 0]


# Which agent.


async def test_models_are_the_agents_and_a_model_chooses_one(make_settings: MakeSettings) -> None:
    agents = {"helper": NamedAgent(agent="tests.support.agents:speak_twice")}
    async with open_pipeline(make_settings(agents=agents)) as pipe, open_door(pipe) as door:
        listed = (await door.request("GET", "/v1/models", door.key)).json()
        assert listed["object"] == "list" and [model["id"] for model in listed["data"]] == ["main", "helper"]
        assert set(listed["data"][0]) == {"id", "object", "created", "owned_by"}
        one = await door.request("GET", "/v1/models/helper", door.key)
        assert (one.status_code, one.json()) == (200, listed["data"][1])
        missing = await door.request("GET", "/v1/models/nobody", door.key)
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
    async with open_pipeline(make_settings(agents=agents, grace_seconds=0)) as pipe, calling(pipe) as caller:
        main = await caller.ask(a_request(), x_keyturn_session="c1")
        assert main.json()["choices"][0]["message"]["content"] == "echo: hello"
        asked = asyncio.create_task(caller.ask(a_request(model="helper"), x_keyturn_session="c1"))
        while await pipe.store.journal.route("agent:helper:api:dm:c1") is None:
            await asyncio.sleep(0.01)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        refused = await caller.ask(a_request(model="gpt-5"))
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")


async def test_a_key_that_a_rule_sends_to_one_agent_sees_no_other(make_settings: MakeSettings) -> None:
    settings = make_settings(
        api=ApiSettings(named_keys={"shop": NamedKey(secrets=(SecretStr("shop-key-0123456789"),))}),
        agents={"helper": NamedAgent(agent="echo"), "hidden": NamedAgent(agent="echo")},
        routing=(RoutingRule(agent="helper", platform="api", account="shop"),),
    )
    async with open_pipeline(settings) as pipe, calling(pipe) as caller:
        shop = Caller(caller.door, "shop-key-0123456789")
        listed = await caller.door.client.get("/v1/models", headers=shop.headers({}))
        assert [model["id"] for model in listed.json()["data"]] == ["helper"]
        for model in ("main", "hidden"):
            assert (await shop.ask(a_request(model=model))).status_code == 404
        await shop.ask(a_request(model="helper"), x_keyturn_session="c1")
        assert await Rig(pipe).transcript("agent:helper:api@shop:dm:c1") == ["hello", "echo: hello"]


# When it does not go well.


async def test_a_turn_that_fails_is_an_error_object_and_no_silence(pipe: Pipeline) -> None:
    async def refuses(text: str) -> str:
        raise Permanent("canary of the inside")

    async with calling(pipe, FunctionAgent(refuses)) as caller:
        whole = await caller.ask(a_request())
        assert (whole.status_code, whole.headers["x-should-retry"]) == (500, "false")
        async with caller.stream(a_request()) as chunks:
            [_, failed] = await chunks.rest()
    for error in (whole.json()["error"], failed["error"]):
        assert error["type"] == "server_error" and "canary" not in str(error) and "could not" in error["message"]


async def test_a_worker_killed_in_mid_stream_is_followed_by_the_rest_of_the_answer(make_settings: MakeSettings) -> None:
    settings = make_settings(agent="tests.support.agents:speak_twice", lease_seconds=1.0)
    async with open_pipeline(settings) as pipe, served(pipe) as door:
        process = start_process(settings, "work")
        try:
            async with Caller(door).stream(a_request()) as chunks:
                assert await chunks.text() == "first half, "
                os.kill(process.pid, signal.SIGKILL)
                async with working(pipe):
                    rest = await chunks.rest()
        finally:
            child.stop(process, signal.SIGKILL, 20)
    assert text_of(rest) == "second half" and rest[-1]["choices"][0]["finish_reason"] == "stop"


async def test_an_answer_that_does_not_come_in_time_is_an_error_and_a_stateless_turn_is_stopped(
    make_settings: MakeSettings,
) -> None:
    led = Led()
    api = ApiSettings(keys=(SecretStr("test-key"),), answer_seconds=0.3)
    async with open_pipeline(make_settings(api=api)) as pipe, calling(pipe, led) as caller:
        whole = await caller.ask(a_request())
        assert (whole.status_code, whole.json()["error"]["type"]) == (504, "server_error")
        async with caller.stream(a_request(), x_keyturn_session="c1") as chunks:
            assert "error" in (await chunks.rest())[-1]
        led.end("late")
        while "late" not in await Rig(pipe).transcript("agent:main:api:dm:c1"):
            await asyncio.sleep(0.01)
    assert len(led.turns) == 1 or led.stopped.is_set()


async def test_a_receiver_that_stops_ends_its_streams_with_an_error(pipe: Pipeline) -> None:
    led = Led()
    async with calling(pipe, led) as caller, caller.stream(a_request()) as chunks:
        led.say("half")
        assert await chunks.text() == "half"
        caller.door.app.state.stopping.set()
        assert (await chunks.rest())[-1]["error"]["type"] == "server_error"


async def test_one_key_may_have_so_many_requests_open_and_others_are_not_counted(make_settings: MakeSettings) -> None:
    class AnswersTheLast:
        async def run(self, turn: Turn) -> Result:
            if turn.mail[-1].text != "last":
                await asyncio.Event().wait()
            return Result((), (Reply("free again"),))

    named = {"other": NamedKey(secrets=(SecretStr("other-key-0123456789"),))}
    api = ApiSettings(keys=(SecretStr("test-key"),), named_keys=named, open_requests=1)
    async with open_pipeline(make_settings(api=api)) as pipe, calling(pipe, AnswersTheLast()) as caller:
        other = Caller(caller.door, "other-key-0123456789")
        async with caller.stream(a_request()) as chunks:
            await chunks.next()
            refused = await caller.ask(a_request())
            assert (refused.status_code, refused.json()["error"]["type"]) == (429, "rate_limit_error")
            assert int(refused.headers["retry-after"]) > 0
            async with other.stream(a_request()) as others:
                await others.next()
        await nobody_waits(pipe)
        assert (await caller.ask(a_request("last"))).status_code == 200


async def test_while_redis_cannot_be_listened_to_the_answer_comes_all_the_same(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deaf(self: answer.AnswerWatch) -> None:
        pass

    monkeypatch.setattr(answer.AnswerWatch, "open", deaf)
    monkeypatch.setattr(answer, "LOOK_SECONDS", 0.02)
    async with calling(pipe) as caller, caller.stream(a_request()) as chunks:
        assert text_of(await chunks.rest()) == "echo: hello"


async def test_a_turn_that_nobody_watches_publishes_nothing(pipe: Pipeline) -> None:
    led, server = Led(), pipe.servers.all[0]
    led.say("a")
    led.end("a")
    rig = Rig(pipe, led)
    await rig.accept("hello")
    await server.client.config_resetstat()
    await rig.run_turns()
    stats: Any = await server.client.info("commandstats")
    assert "cmdstat_publish" not in stats


# Pictures.


def a_picture(content: bytes, form: str = "data:image/png;base64,") -> dict[str, Any]:
    """A request with one, as front ends write it."""
    url = {"url": form + base64.b64encode(content).decode()}
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": url}]
    return {"model": "main", "messages": [{"role": "user", "content": parts}]}


async def digests(pipe: Pipeline) -> list[str]:
    found = [await pipe.blobs.unused_for(timedelta(0), shard, "", 10) for shard in range(SHARDS)]
    return [digest for each in found for digest in each]


async def test_a_picture_in_a_request_reaches_the_agent_as_a_file_and_is_in_no_table(pipe: Pipeline) -> None:
    """Larger than MAX_BODY_BYTES, and asked twice: it is kept once, as long as a conversation refers to it."""
    content, read = a_png(2_000_000), list[bytes]()

    class Looking:
        async def run(self, turn: Turn) -> Result:
            [media] = turn.mail[-1].media
            read.append(await turn.files.read(media))
            return Result((), (Reply(f"{turn.mail[-1].text} [{media.name}, {media.type}]"),))

    async with calling(pipe, Looking()) as caller:
        kept = await caller.ask(a_picture(content), x_keyturn_session="chat-1")
        assert kept.status_code == 200, kept.text
        assert kept.json()["choices"][0]["message"]["content"] == "look [image.png, image/png]"
        stateless = await caller.ask(a_picture(content))
        assert stateless.status_code == 200 and read == [content, content]
        everything = str(await ask(pipe.store, "SELECT * FROM messages, outbox, inbox"))
        assert "blob:" in everything and base64.b64encode(content[:300]).decode()[:400] not in everything
    [digest] = await digests(pipe)
    assert await pipe.store.blob_references.unreferred([digest]) == []
    [session] = await ask(pipe.store, "SELECT id, version FROM sessions")
    assert await pipe.store.delete(session["id"], session["version"])
    assert await pipe.store.blob_references.unreferred([digest]) == [digest]


async def test_a_picture_that_cannot_be_read_is_refused_and_nothing_is_kept(make_settings: MakeSettings) -> None:
    api = ApiSettings(keys=(SecretStr("test-key"),), chat_body_bytes=1_048_577)
    refused = {
        "no picture": (a_picture(b"<html>"), 400, "an image is none"),
        "no base64": (a_picture(b"", "data:image/png;base64,?"), 400, "an image is not base64"),
        "not written so": (a_picture(b"x", "data:image/png,"), 400, "data:image/…;base64,…"),
        "large": (a_picture(a_png(50_000)), 413, "messages[0].content: an image is larger than 40000 bytes"),
        "a large request": (a_picture(a_png(1_000_000)), 413, "too large"),
        "of a kind": (a_picture(b"GIF89a" + bytes(20)), 400, "files of the kind image/gif are not read here"),
    }
    media = MediaSettings(max_bytes=40_000, types=("image/png",))
    async with open_pipeline(make_settings(api=api, media=media)) as pipe, open_door(pipe) as door:
        for name, (asked, status, words) in refused.items():
            answer = await door.request("POST", PATH, door.key, orjson.dumps(asked))
            said = answer.json()["error"]["message"]
            assert (answer.status_code, words in said) == (status, True), (name, answer.status_code, said)
        assert await digests(pipe) == [] and await words_left(pipe) == []
    none = make_settings(api=api, media=MediaSettings(max_files=0))
    async with open_pipeline(none) as pipe, open_door(pipe) as door:
        answer = await door.request("POST", PATH, door.key, orjson.dumps(a_picture(a_png())))
        assert (answer.status_code, await digests(pipe)) == (400, [])


# Who may call.


async def test_errors_are_in_openais_form(pipe: Pipeline) -> None:
    async with open_door(pipe) as door:
        wrong = await door.request("POST", PATH, {"authorization": "Bearer wrong"}, b"{}")
        broken = await door.request("POST", PATH, door.key, b"{")
        long = [{"role": "system", "content": "x" * pipe.settings.max_body_bytes}, *a_request()["messages"]]
        large = await door.request("POST", PATH, door.key, orjson.dumps({"messages": long}))
    assert [answer.status_code for answer in (wrong, broken, large)] == [401, 400, 413]
    for response in (wrong, broken, large):
        assert set(response.json()) == {"error"} and set(response.json()["error"]) == {
            "message",
            "type",
            "param",
            "code",
        }
    assert wrong.json()["error"]["code"] == "invalid_api_key"


async def test_a_web_page_may_call_only_where_it_is_listed(make_settings: MakeSettings) -> None:
    page = {"origin": "https://chat.example.org"}
    async with open_pipeline(make_settings()) as pipe, open_door(pipe) as door:
        plain = await door.request("GET", "/v1/models", {**dict(door.key), **page})
        assert not any(name.startswith("access-control") for name in plain.headers)
        assert (await door.request("OPTIONS", PATH, page)).status_code == 405
    api = ApiSettings(keys=(SecretStr("test-key"),), cors_origins=("https://chat.example.org",))
    async with open_pipeline(make_settings(api=api)) as pipe, open_door(pipe) as door:
        asked = await door.request("OPTIONS", PATH, page)
        assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (204, page["origin"])
        for key in (dict(door.key), {}):
            answered = await door.request("GET", "/v1/models", {**key, **page})
            assert answered.headers["access-control-allow-origin"] == page["origin"]
        other = await door.request("GET", "/v1/models", {**dict(door.key), "origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers
