"""Whose an imported conversation is, and what comes along with it: its past, its cost, what was remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from keyturn.importing.conversation import GatewayReader, session_id
from keyturn.importing.hermes.home import HermesHome
from keyturn.importing.memory import owner_named
from keyturn.importing.nanobot.workspace import NanobotWorkspace
from keyturn.importing.report import Report
from keyturn.importing.write import move_in
from shared.clock import now_ms
from shared.codec import message_id
from shared.context import marks
from shared.door import accept
from shared.messages import Inbound, Source
from shared.pipeline import Pipeline
from shared.routing import Sharing
from shared.settings import MemorySettings, ResetSettings, Settings
from tests.flow.test_cli import Cli, cli, environment, lone_cli
from tests.flow.test_memory import Model
from tests.store.books import write
from tests.support.older import AT, Hermes, Nanobot, origin, said
from tests.support.pipe import Rig
from workers.upkeep.memory import EndedConversations

__all__ = ["cli", "environment", "lone_cli"]

GROUP = "telegram:-100"


@pytest.fixture
def settings(make_settings: Callable[..., Settings]) -> Settings:
    reset = ResetSettings(mode="idle", idle_minutes=10_000_000)
    return make_settings(shared_chats=(GROUP,), reset=reset, memory=MemorySettings(after_seconds=0))


@pytest.fixture
def model(rig: Rig) -> Model:
    rig.agent = Model()
    return rig.agent


@pytest.fixture
def hermes(tmp_path: Path) -> Hermes:
    return Hermes(tmp_path / "home")


async def moved(pipe: Pipeline, reader: GatewayReader, **options: Any) -> Report:
    return await move_in(reader, pipe.store.database, **options)


async def home(pipe: Pipeline, hermes: Hermes, **options: Any) -> Report:
    return await moved(pipe, HermesHome(hermes.write_index(), Sharing.of(pipe.settings)), **options)


async def say(rig: Rig, text: str, source: Source) -> str:
    """A message and its turn; the key of the conversation it came to."""
    event_id = f"{text}-{now_ms()}"
    inbound = Inbound(message_id(source.platform, "", event_id), event_id, source, text, received_at=now_ms())
    accepted = await accept(rig.pipe, inbound)
    await rig.run_turns(accepted.session_key)
    return accepted.session_key


def direct(user: str) -> Source:
    return Source("telegram", user, user=user, user_name="Ann")


async def test_nobody_finds_the_words_of_others_that_one_old_key_held(
    pipe: Pipeline, rig: Rig, model: Model, hermes: Hermes
) -> None:
    hermes.entry("agent:main:telegram:dm", "all", origin(11, user_id="11"))
    hermes.session("all", said("mine", "yes", "the secret of 12", "yes"), user_id="11")
    hermes.session("before", said("mine", "yes", "another secret of 12", "yes"), user_id="11", ended_at=AT)
    report = await home(pipe, hermes)
    assert report.outcomes == {} and "holds the messages of everybody" in report.skipped[0].reason
    await say(rig, "hello", direct("11"))
    assert [entry.text for entry in model.turns[0].history] == []
    await say(rig, "/search secret", direct("11"))
    assert "secret of 12" not in (await pipe.store.outbox.open_parts("to:telegram:11", 10))[-1].text


async def test_a_conversation_that_was_left_there_is_resumed_here_by_its_title(
    pipe: Pipeline, rig: Rig, model: Model, hermes: Hermes
) -> None:
    hermes.talk(11, "now", "a", "b")
    hermes.session("left", said("long ago", "yes"), user_id="11", title="Plans", ended_at=AT, api_call_count=1)
    assert (await home(pipe, hermes)).outcomes == {"imported": 2}
    key = await say(rig, "/resume Plans", direct("11"))
    await say(rig, "and now?", direct("11"))
    assert (await rig.transcript(key))[:2] == ["long ago", "yes"]
    assert [entry.text for entry in model.turns[0].history][:2] == ["long ago", "yes"]


async def test_a_group_that_shared_one_conversation_goes_on_with_it(
    pipe: Pipeline, rig: Rig, model: Model, tmp_path: Path
) -> None:
    nanobot = Nanobot(tmp_path / "workspace")
    nanobot.session(GROUP, said("a", "b"))
    nanobot.session("telegram:-200", said("c", "d"))
    reader = NanobotWorkspace(nanobot.workspace, Sharing.of(pipe.settings))
    report = await moved(pipe, reader)
    assert report.shared_chats == {"telegram:-200"}
    assert [note["note"] for note in report.notes] == ["it goes on only with telegram:-200 in SHARED_CHATS"]
    for user in ("11", "12"):
        await say(rig, f"I am {user}", Source("telegram", "-100", "group", user=user))
    assert [[entry.text for entry in turn.history] for turn in model.turns] == [
        ["a", "b"],
        ["a", "b", "I am 11", "answer 1"],
    ]
    assert await say(rig, "me", Source("telegram", "-200", "group", user="11")) == "agent:main:telegram:group:-200:u=11"


async def test_whoever_spoke_in_a_shared_topic_is_its_sender(
    pipe: Pipeline, rig: Rig, model: Model, hermes: Hermes
) -> None:
    hermes.entry("agent:main:telegram:group:-9:77", "s", origin(-9, chat_type="group", thread_id=77))
    hermes.session("s", said("[Ann] hello", "hi", "[Bob] me too", "hi"))
    await home(pipe, hermes)
    await say(rig, "hey", Source("telegram", "-9", "group", user="13", thread="77"))
    told = [(entry.data.get(marks.SENDER), entry.text) for entry in model.turns[0].history]
    assert told == [("Ann", "hello"), (None, "hi"), ("Bob", "me too"), (None, "hi")]


async def test_thinking_and_content_blocks_reach_the_agent_as_they_were(
    pipe: Pipeline, rig: Rig, model: Model, tmp_path: Path
) -> None:
    picture = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]
    thought = [{"type": "thinking", "thinking": "a \N{CAT FACE}", "signature": "c2lnbmVk"}]
    nanobot = Nanobot(tmp_path / "workspace")
    nanobot.session(
        "telegram:11",
        [{"role": "user", "content": picture}, {"role": "assistant", "content": "nice", "thinking_blocks": thought}],
    )
    await moved(pipe, NanobotWorkspace(nanobot.workspace, Sharing()))
    await say(rig, "and?", direct("11"))
    seen, nice = model.turns[0].history
    assert (seen.data[marks.BLOCKS], nice.data[marks.THINKING]) == (picture, thought)


async def test_an_api_client_and_a_terminal_meet_their_conversations(
    pipe: Pipeline, rig: Rig, model: Model, hermes: Hermes, tmp_path: Path
) -> None:
    hermes.session("api-1", said("by hermes", "yes"), source="api_server")
    await home(pipe, hermes)
    nanobot = Nanobot(tmp_path / "workspace")
    nanobot.session("api:default", said("by nanobot", "yes"))
    nanobot.session("cli:direct", said("typed", "yes"))
    await moved(pipe, NanobotWorkspace(nanobot.workspace, Sharing()))
    for source in (Source("api", "api-1", user="u"), Source("api", "default", user="u"), Source("local", "terminal")):
        await say(rig, "more", source)
    assert [turn.history[0].text for turn in model.turns] == ["by hermes", "by nanobot", "typed"]


async def test_tokens_and_cost_come_along_and_are_counted_once(pipe: Pipeline, hermes: Hermes, tmp_path: Path) -> None:
    spent = {"model": "m", "api_call_count": 2, "input_tokens": 100, "output_tokens": 20, "cache_read_tokens": 30}
    key = hermes.talk(11, "s", "a", "b", **spent, estimated_cost_usd=0.25, cost_status="estimated")
    hermes.index[key]["last_prompt_tokens"] = 77
    nanobot = Nanobot(tmp_path / "workspace")
    nanobot.session("telegram:12", said("a"))
    nanobot.called(("n", AT, 5, 1), ("n", AT + 60, 6, 1), ("n", AT + 86_400, 1, 1))
    id = session_id("hermes", "s")
    for _ in range(2):
        await home(pipe, hermes)
        await moved(pipe, NanobotWorkspace(nanobot.workspace, Sharing()))
        used, last_prompt = await pipe.store.usage.of_session(id)
        assert (used.requests, used.input, used.output, used.cache_read, used.total) == (2, 130, 20, 30, 150)
        assert (used.cost_usd, used.cost, last_prompt) == (Decimal("0.25"), "estimated", 77)
        assert await pipe.store.usage.of_owner("telegram:u=11") == used
        by_day = await pipe.store.usage.by("day", "", 10)
        assert [(day, one.requests, one.total) for day, one in by_day] == [("2026-01-02", 1, 2), ("2026-01-01", 4, 163)]
    assert hermes.database is not None
    hermes.database.execute("UPDATE sessions SET input_tokens = 200, api_call_count = 3")
    hermes.database.execute("INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', 'c', 9)")
    assert (await home(pipe, hermes)).outcomes == {"grown": 1}
    used, _ = await pipe.store.usage.of_session(id)
    assert (used.requests, used.input) == (3, 230)


async def test_a_session_that_was_looked_at_there_is_not_looked_at_again(
    pipe: Pipeline, rig: Rig, model: Model, hermes: Hermes
) -> None:
    looked_at = hermes.talk(11, "done", "a", "b", "c", "d")
    hermes.index[looked_at]["memory_flushed"] = True
    key = hermes.talk(12, "new", "a", "b", "c", "d")
    await home(pipe, hermes)
    await write(pipe.store, "UPDATE sessions SET updated_at = 1")
    await EndedConversations(pipe).look()
    await rig.run_turns(key)
    assert len(model.questions) == 1
    assert await rig.pop(pipe.turns, looked_at) is None


async def test_what_was_remembered_there_is_remembered_here_once(
    pipe: Pipeline, rig: Rig, model: Model, hermes: Hermes, tmp_path: Path
) -> None:
    hermes.talk(11, "s", "a")
    hermes.session("typed", said("x"), source="cli")
    hermes.remember("MEMORY.md", "The server is called heron.", "Deploys are on Friday.")
    assert (await home(pipe, hermes, dry_run=True)).remembered == 4  # the operator's terminal is shown them too
    reports = await asyncio.gather(*(home(pipe, hermes) for _ in range(2)))
    assert sum(report.remembered for report in reports) == 4
    await say(rig, "hello", direct("11"))
    assert model.turns[0].memory == ("The server is called heron.", "Deploys are on Friday.")
    await write(pipe.store, "DELETE FROM notes WHERE text LIKE 'Deploys%'")
    assert (await home(pipe, hermes)).remembered == 0
    await say(rig, "hello", direct("11"))
    assert model.turns[1].memory == ("The server is called heron.",)  # what was forgotten does not come back


async def test_what_several_people_were_shown_is_given_to_nobody_unless_somebody_says_whose_it_is(
    pipe: Pipeline, rig: Rig, model: Model, hermes: Hermes
) -> None:
    for user in ("11", "12"):
        hermes.talk(int(user), f"s{user}", "a")
    hermes.remember("USER.md", "Lives in Kyiv.")
    report = await home(pipe, hermes)
    assert (report.remembered, report.not_remembered is not None) == (0, True)
    assert (await home(pipe, hermes, memory_of=[owner_named("telegram:12")])).remembered == 1
    for user in ("11", "12"):
        await say(rig, "hello", direct(user))
    assert [turn.memory for turn in model.turns] == [(), ("Lives in Kyiv.",)]


# As a person types it.


async def test_keyturn_import_takes_a_workspace_whose_sessions_lie_beside_it(cli: Cli, tmp_path: Path) -> None:
    data = tmp_path / ".nanobot"
    nanobot = Nanobot(data / "workspace", data=data)
    nanobot.session("telegram:11", said("a", "b"))
    nanobot.session("telegram:-5", said("a", "b"))
    nanobot.session("telegram:12", said("a"))
    nanobot.remember("memory/MEMORY.md", "- Lives in Kyiv")
    nanobot.remember("memory/history.jsonl", '{"cursor": 1, "content": "they met"}\n')
    printed = await cli("import", "nanobot", str(data / "workspace"))
    assert printed.code == 0 and printed.err.splitlines() == ["3 of 3 sessions"]
    assert "memory files: several people" in printed.out
    assert printed.out.splitlines()[-1] == "KEYTURN_SHARED_CHATS=telegram:-5"
    again = await cli("import", "nanobot", str(data / "workspace"), "--memory-of", "telegram:11", "--json")
    assert (again.json["unchanged"], again.json["memory_notes"], again.json["memory_left"]) == (3, 1, None)
    wrong = await cli("import", "nanobot", str(data / "workspace"), "--memory-of", "Ann")
    assert wrong.code == 1 and "no person" in wrong.err and "Traceback" not in wrong.err
