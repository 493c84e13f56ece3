"""The dashboard over a pipeline at work: what it shows is what happened, and what its forms do is what they say."""

from __future__ import annotations

import asyncio
import re
import shlex
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from html import escape, unescape
from pathlib import Path
from typing import Any, Self

import httpx
import orjson
import pytest
import redis
from pydantic import SecretStr
from starlette.requests import Request

from keyturn.cli.app import command
from keyturn.cli.doctor.processes import check_processes
from keyturn.dashboard import watch
from keyturn.dashboard.access import LoginFiles, Role
from keyturn.dashboard.app import FORMS, PAGES
from keyturn.dashboard.desk import Desk, Visit
from keyturn.dashboard.guard import Form
from keyturn.dashboard.pages import live
from keyturn.dashboard.pages import sessions as session_pages
from keyturn.dashboard.pages.live import EVERY_SECONDS
from keyturn.dashboard.render import link
from shared import keys
from shared.errors import Unavailable
from shared.lane.rq_names import WORKER_PREFIX, WORKERS, WorkerField, time_text
from shared.mail import encode_mail
from shared.messages import Source
from shared.operating.audit import Action, Operator, audited
from shared.operating.pauses import pause
from shared.pause_scope import ScopeKind
from shared.pipeline import Pipeline, open_pipeline
from shared.reading import conversations as reading_conversations
from shared.reading import sessions as reading_sessions
from shared.reading import workers as reading_workers
from shared.reading.audit import audit_log
from shared.reading.dead_letters import LetterState, dead_letters
from shared.reading.keys import KeyPhase, state_of_key
from shared.reading.overview import ANSWER_SECONDS, Overview, overview
from shared.reading.pauses import Pause
from shared.reading.trace import find_message
from shared.settings import Settings
from tests.store.books import ask, write
from tests.support.dashboard import SAME_ORIGIN, Page, Visitor, visiting
from tests.support.dashboard_server import serving
from tests.support.outage import ValkeyOutage
from tests.support.pipe import Rig, an_inbound, key_of

KEY = key_of()


@pytest.fixture
async def admin(pipe: Pipeline) -> AsyncIterator[Visitor]:
    async with visiting(pipe) as visitor:
        await visitor.enter(Role.ADMIN)
        yield visitor


@pytest.fixture
async def viewer(pipe: Pipeline) -> AsyncIterator[Visitor]:
    async with visiting(pipe) as visitor:
        await visitor.enter(Role.VIEW)
        yield visitor


async def a_dead_letter(rig: Rig, text: str = "hello", chat: str = "c1", reason: str = "malformed") -> int:
    """A message that was set aside, and its letter's number."""
    await rig.accept(text, chat=chat)
    await rig.run_turns(key_of(chat))
    row = await rig.pipe.store.sessions.find(key_of(chat))
    assert row is not None
    [message] = [one for one in await rig.pipe.store.sessions.messages(row["id"], 10) if one["role"] == "user"]
    found = await rig.pipe.store.journal.find(message["inbound_id"])
    assert found is not None
    await rig.pipe.store.dead.set_aside("inbound", found["id"], key_of(chat), reason, "why", found["payload"])
    [letter, *_] = await dead_letters(rig.pipe.store, LetterState.OPEN, 1)
    return letter.id


async def done(pipe: Pipeline) -> list[tuple[str, str, str]]:
    """What the audit log says, oldest first."""
    return [(row.action, row.target, row.outcome) for row in reversed(await audit_log(pipe.store, 50))]


# -- looking


@pytest.mark.parametrize(
    "room", [room.path for room in PAGES if room.path not in ("/live", "/conversation", "/session")]
)
async def test_every_page_of_an_empty_deployment_says_that_there_is_nothing(admin: Visitor, room: str) -> None:
    answer = await admin.get(room)
    assert answer.status_code == (404 if room in ("/dead/letter", "/schedule", "/question") else 200), answer.text
    assert answer.text.count("<h1") == 1


async def test_the_overview_says_in_words_that_no_worker_is_alive(rig: Rig, viewer: Visitor) -> None:
    await rig.accept("hello")
    page = await viewer.page("/")
    assert "No worker is alive, and 1 conversation waits: start `keyturn work`." in page.text


async def test_conversations_are_found_by_what_they_wait_for(rig: Rig, viewer: Visitor) -> None:
    await rig.accept("hello", chat="ended")
    await rig.run_turns(key_of("ended"))
    await rig.accept("hello", chat="runs")
    await rig.accept("again", chat="runs")
    await rig.lease(key_of("runs"))
    await rig.accept("hello", chat="waits")
    expected = {
        "": {"waits", "runs", "ended"},
        "state:awake": {"waits"},
        "state:leased": {"runs"},
        "state:idle": {"ended"},
        "platform:webhook state:leased": {"runs"},
        "platform:telegram": set(),
        "age>1h": set(),
        "attempts>0": {"runs"},
        "attempts>1": set(),
        "user:u1": {"ended"},
        "user:nobody": set(),
        "key:dm:wai": {"waits"},
        key_of("ended"): {"ended"},
    }
    for query, chats in expected.items():
        page = await viewer.page("/conversations", q=query)
        assert {chat for chat in ("waits", "runs", "ended") if key_of(chat) in page.text} == chats, query


async def test_conversations_are_found_by_their_wait(rig: Rig, viewer: Visitor) -> None:
    accepted = await rig.accept("hello")
    earlier = int((datetime.now(UTC) - timedelta(minutes=5)).timestamp() * 1000)
    await write(rig.pipe.store, f"UPDATE inbox SET received_at = {earlier} WHERE id = '{accepted.id}'")
    assert KEY in (await viewer.page("/conversations", q="age>4m")).text
    assert KEY not in (await viewer.page("/conversations", q="age>6m")).text


@pytest.mark.parametrize("query", ["state:asleep", "age>soon", "attempts>many", "colour:red"])
async def test_a_query_that_is_not_understood_is_explained(viewer: Visitor, query: str) -> None:
    page = await viewer.page("/conversations", q=query)
    assert any(word in page.text for word in ("choose from", "write"))


async def test_a_conversation_says_why_it_waits(rig: Rig, viewer: Visitor) -> None:
    await rig.accept("hello")
    assert "It is ready, and no worker is alive" in (await viewer.page("/conversation", key=KEY)).text
    await rig.accept("again")
    await rig.lease(KEY)
    page = await viewer.page("/conversation", key=KEY)
    assert "A worker runs its turn, attempt 1. 1 message waits behind it." in page.text
    await rig.expire_lease(rig.pipe.turns, KEY)
    assert "A housekeeper wakes the key." in (await viewer.page("/conversation", key=KEY)).text


async def test_what_was_said_is_shown_on_request_only_and_each_showing_is_audited(rig: Rig, admin: Visitor) -> None:
    await rig.accept("a secret word")
    await rig.run_turns()
    page = await admin.page("/conversation", key=KEY)
    assert "secret word" not in page.html and "13 characters" in page.text
    shown = await admin.press(page, "Show what was said")
    assert "a secret word" in shown.text and "echo: a secret word" in shown.text
    assert await done(rig.pipe) == [("read conversation", KEY, "done")]


async def test_the_role_view_sees_no_text_of_anybody(rig: Rig, viewer: Visitor) -> None:
    accepted = await rig.accept("a secret word")
    await rig.run_turns()
    session = await rig.pipe.store.sessions.find(KEY)
    assert session is not None
    letter = await a_dead_letter(rig, "a secret word", "c2")
    await write(rig.pipe.store, "UPDATE sessions SET title = 'a secret word'")
    await write(rig.pipe.store, "UPDATE dead SET detail = 'a secret word'")
    await write(rig.pipe.store, "UPDATE outbox SET reason = 'error: a secret word'")
    await write(rig.pipe.store, "UPDATE inbox SET reason = 'error: a secret word'")
    for path, fields in (
        ("/conversation", {"key": KEY}),
        ("/session", {"id": session["id"]}),
        ("/dead/letter", {"id": letter}),
        ("/sessions", {}),
        ("/conversations", {}),
        ("/dead", {}),
        ("/deliveries", {}),
        ("/messages", {"id": accepted.id}),
    ):
        assert "a secret word" not in (await viewer.page(path, **fields)).html, path
    assert (await viewer.get("/sessions", q="secret")).status_code == 403


async def test_a_trace_shows_every_stage_of_a_message(rig: Rig, viewer: Visitor) -> None:
    accepted = await rig.accept("hello")
    await rig.run_turns()
    page = await viewer.page("/messages", id=accepted.id)
    for stage in ("received", "claimed", "started", "committed"):
        assert stage in page.text
    assert "answered" in page.text and KEY in page.text
    assert (await viewer.get("/messages", id="in_nothing")).status_code == 404


async def test_deliveries_show_what_is_not_sent_and_what_needs_a_decision(rig: Rig, viewer: Visitor) -> None:
    await rig.accept("hello")
    await rig.run_turns()
    assert "to:webhook:c1" in (await viewer.page("/deliveries")).text
    assert "to:webhook:c1" not in (await viewer.page("/deliveries", show="flagged")).text
    await write(rig.pipe.store, "UPDATE outbox SET state = 'buried', ambiguous = 1, reason = 'gone for good'")
    assert "to:webhook:c1" not in (await viewer.page("/deliveries")).text
    flagged = (await viewer.page("/deliveries", show="flagged")).text
    assert "gone for good" in flagged and "ambiguous" in flagged and "buried" in flagged


async def test_long_lists_come_in_pages(rig: Rig, viewer: Visitor) -> None:
    for n in range(60):
        await rig.pipe.store.dead.set_aside("request", f"ref-{n:03}", None, "malformed", "", f"payload {n}")
    first = await viewer.page("/dead")
    older = next(values["href"] for tag, values in first.elements if tag == "a" and values.get("rel") == "next")
    second = await viewer.page(older)
    numbers = [
        [
            int(values["href"].rpartition("=")[2])
            for tag, values in page.elements
            if "/dead/letter" in values.get("href", "")
        ]
        for page in (first, second)
    ]
    assert [len(found) for found in numbers] == [50, 10] and max(numbers[1]) < min(numbers[0])
    assert not any(values.get("rel") == "next" for _, values in second.elements)


# -- repairing


async def test_a_dead_letter_is_replayed_once(rig: Rig, admin: Visitor) -> None:
    id = await a_dead_letter(rig)
    page = await admin.press(await admin.page("/dead/letter", id=id), "Replay")
    assert "runs again" in page.text and "pending" in page.text
    assert (await admin.post("/dead/one", id=id, action="replay")).status_code == 409
    await rig.run_turns()
    assert (await rig.transcript())[-2:] == ["hello", "echo: hello"]
    assert [row[:2] for row in await done(rig.pipe)] == [("replay dead letter", str(id))] * 2
    assert "failed: dead letter" in (await done(rig.pipe))[-1][2]


async def test_a_dead_letter_is_dropped_and_its_record_stays(rig: Rig, admin: Visitor) -> None:
    id = await a_dead_letter(rig)
    page = await admin.press(await admin.page("/dead/letter", id=id), "Drop")
    assert "was dropped" in page.text
    assert str(id) in (await admin.page("/dead", state="dropped")).text


async def test_a_bulk_replay_shows_first_what_it_would_do(rig: Rig, admin: Visitor) -> None:
    wanted = [await a_dead_letter(rig, f"text {n}", f"c{n}", "agent failed") for n in range(5)]
    other = await a_dead_letter(rig, "other", "other", "something else")
    plan = await admin.act("/dead/bulk", action="replay", reason="agent failed")
    assert "Dry run: replay 5 dead letters" in plan.text and "Nothing has been changed yet." in plan.text
    assert len(await dead_letters(rig.pipe.store, LetterState.OPEN, 50)) == 6
    assert await done(rig.pipe) == []
    late = await a_dead_letter(rig, "late", "late", "agent failed")
    page = await admin.press(plan, "Replay these 5")
    assert "5 letters were replayed." in page.text
    assert {one.id for one in await dead_letters(rig.pipe.store, LetterState.OPEN, 50)} == {other, late}
    assert {one.id for one in await dead_letters(rig.pipe.store, LetterState.REPLAYED, 50)} == set(wanted)
    whole, *each = await done(rig.pipe)
    assert whole == ("replay dead letters", "5 letters: reason agent failed", "done")
    assert each == [("replay dead letter", str(id), "done") for id in sorted(wanted)]


on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@on_sqlite
async def test_a_letter_that_cannot_be_replayed_holds_up_no_other_of_a_bulk_run(rig: Rig, admin: Visitor) -> None:
    nobodys = replace(an_inbound("hello"), source=Source("webhook", "g1", "group"))
    await rig.pipe.store.dead.set_aside("inbound", "in_1", None, "agent failed", "", encode_mail(nobodys).decode())
    await a_dead_letter(rig, reason="agent failed")
    plan = await admin.act("/dead/bulk", action="replay", reason="agent failed")
    page = await admin.press(plan, "Replay these 2")
    assert "1 letters were replayed. 1 not: dead letter cannot be replayed" in page.text


@on_sqlite
async def test_an_action_that_ends_with_an_error_of_redis_is_said_to_have_failed(pipe: Pipeline) -> None:
    async def work() -> None:
        raise redis.ResponseError("OOM a secret")

    with pytest.raises(redis.ResponseError):
        await audited(pipe.store, Operator("ann", "admin"), Action("release key", "k"), work)
    assert await done(pipe) == [("release key", "k", "failed: ResponseError")]


@on_sqlite
async def test_synthetic_sessions_take_no_place_in_lists(
    rig: Rig, viewer: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    chats = [key_of(f"c{n}") for n in range(4)]
    for n, key in enumerate(chats):
        await rig.accept(chat=f"c{n}")
        await rig.run_turns(key)
    monkeypatch.setattr(session_pages, "ROWS", 2)
    for reader in (reading_sessions, reading_conversations):
        monkeypatch.setattr(reader, "is_synthetic", lambda key: key == chats[3])
    first = await viewer.page("/sessions")
    assert chats[3] not in first.text and chats[2] in first.text and chats[1] in first.text
    older = next(values["href"] for tag, values in first.elements if tag == "a" and values.get("rel") == "next")
    assert chats[0] in (await viewer.page(older)).text
    shown = (await viewer.page("/")).text
    assert chats[3] not in shown and chats[2] in shown


@on_sqlite
async def test_sessions_of_one_millisecond_are_all_found_by_older(
    rig: Rig, viewer: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    chats = [key_of(f"c{n}") for n in range(5)]
    for n, key in enumerate(chats):
        await rig.accept(chat=f"c{n}")
        await rig.run_turns(key)
    await write(rig.pipe.store, "UPDATE sessions SET updated_at = 1763427000123")
    monkeypatch.setattr(session_pages, "ROWS", 2)
    page = await viewer.page("/sessions")
    shown = page.text
    while older := [values["href"] for tag, values in page.elements if tag == "a" and values.get("rel") == "next"]:
        page = await viewer.page(older[0])
        shown += page.text
    assert [shown.count(key) for key in chats] == [1] * 5


@on_sqlite
async def test_a_text_that_is_edited_keeps_its_hidden_signs_and_its_lines(rig: Rig, admin: Visitor) -> None:
    text = "</textarea>\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\nsecond line"
    id = await a_dead_letter(rig, text)
    page = await admin.act("/dead/read", id=id)
    assert f">{escape(text)}</textarea>" in page.html
    sent = text.replace("\n", "\r\n")  # so does every browser
    await admin.act("/dead/edit", id=id, text=sent)
    await rig.run_turns()
    assert (await rig.transcript())[-2:] == [text, f"echo: {text}"]


@on_sqlite
async def test_a_pause_that_is_ended_where_texts_are_shown_leads_back_to_the_page(rig: Rig, admin: Visitor) -> None:
    await rig.accept("hello")
    await rig.run_turns()
    await pause(rig.pipe, KEY, by="ann")
    read = await admin.act("/conversation/read", key=KEY)
    assert "Paused" in read.text and "echo: hello" in read.text
    back = await admin.press(read, "Resume the conversation")
    assert f"Resumed: {KEY}." in back.text and "Nothing waits here." in back.text


@on_sqlite
async def test_a_worker_that_several_redis_servers_know_is_shown_once(
    pipe: Pipeline, viewer: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = pipe.servers.all[0]
    await server.client.sadd(WORKERS, f"{WORKER_PREFIX}w1")
    reported: dict[Any, Any] = {WorkerField.LAST_HEARTBEAT: time_text(time.time()), WorkerField.CAPACITY: "200"}
    await server.client.hset(f"{WORKER_PREFIX}w1", mapping=reported)
    monkeypatch.setattr(pipe.servers, "all", (server, server))
    assert [worker.name for worker in (await overview(pipe)).workers] == ["w1"]
    assert "of 200 slots" in (await viewer.page("/")).text


class _FastClock(datetime):
    """A machine's clock that is a minute ahead."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return super().now(tz) + timedelta(minutes=1)


@on_sqlite
async def test_a_worker_is_alive_by_the_clock_of_redis_whatever_the_dashboards_clock_says(
    pipe: Pipeline, viewer: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = pipe.servers.all[0].client
    await client.sadd(WORKERS, f"{WORKER_PREFIX}w1")
    seconds, _ = await client.time()
    await client.hset(f"{WORKER_PREFIX}w1", WorkerField.LAST_HEARTBEAT, time_text(seconds))
    await client.set(keys.HOUSEKEEPER, 1, ex=keys.HOUSEKEEPER_TTL_S)
    monkeypatch.setattr(reading_workers, "datetime", _FastClock)
    page = await viewer.page("/")
    assert "All is well." in page.text and "silent for" not in page.text
    [seen_by_doctor, *_] = await check_processes(pipe.servers, pipe.servers.all[0])
    assert seen_by_doctor.detail.startswith("1 alive")


@on_sqlite
async def test_the_overview_is_there_while_the_list_of_the_last_active_cannot_be_read(
    viewer: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise Unavailable("the database does not answer")

    monkeypatch.setattr(watch, "recent_conversations", away)
    assert "No worker is alive" in (await viewer.page("/")).text


async def test_a_bulk_action_that_names_nothing_is_refused(rig: Rig, admin: Visitor) -> None:
    await a_dead_letter(rig)
    assert (await admin.post("/dead/bulk", action="drop")).status_code == 409
    assert len(await dead_letters(rig.pipe.store, LetterState.OPEN, 50)) == 1


async def test_the_payload_of_a_dead_letter_is_shown_on_request_and_audited(rig: Rig, admin: Visitor) -> None:
    id = await a_dead_letter(rig, "a secret word")
    page = await admin.page("/dead/letter", id=id)
    assert "secret word" not in page.html
    assert "a secret word" in (await admin.press(page, "Show the payload")).text
    assert await done(rig.pipe) == [("read dead letter", str(id), "done")]


async def test_an_error_that_may_repeat_what_was_said_is_shown_on_request_and_audited(rig: Rig, admin: Visitor) -> None:
    id = await a_dead_letter(rig, "hello")
    await write(rig.pipe.store, "UPDATE dead SET detail = 'ValueError: a secret word'")
    await write(rig.pipe.store, "UPDATE inbox SET reason = 'error: ValueError: a secret word'")
    [row] = await ask(rig.pipe.store, "SELECT id FROM inbox")
    for path, fields in (("/dead", {}), ("/dead/letter", {"id": id}), ("/messages", {"id": row["id"]})):
        assert "secret word" not in (await admin.page(path, **fields)).html, path
    assert await done(rig.pipe) == []
    shown = await admin.press(await admin.page("/dead/letter", id=id), "Show the payload")
    assert "ValueError: a secret word" in shown.text
    assert await done(rig.pipe) == [("read dead letter", str(id), "done")]


async def test_a_key_is_released_from_its_worker(rig: Rig, admin: Visitor) -> None:
    await rig.accept("hello")
    await rig.lease(KEY)
    page = await admin.press(await admin.page("/conversation", key=KEY), "Release the key")
    assert "The key was leased." in page.text
    assert (await state_of_key(rig.pipe.turns, KEY)).state is KeyPhase.AWAKE
    assert await done(rig.pipe) == [("release key", KEY, "done")]
    assert (await admin.post("/conversation/release", key=key_of("nobody"))).status_code == 409


async def test_a_conversation_is_stopped_as_by_its_user(rig: Rig, admin: Visitor) -> None:
    accepted = await rig.accept("hello")
    page = await admin.press(await admin.page("/conversation", key=KEY), "Stop the turn")
    assert "No turn was running. Messages that get no answer: 1." in page.text
    await rig.run_turns()
    assert (await find_message(rig.pipe, accepted.id)).state != "answered"
    await rig.accept("later")
    await rig.run_turns()
    assert (await rig.transcript())[-1] == "echo: later"
    assert await done(rig.pipe) == [("stop key", KEY, "done")]


async def test_a_running_turn_is_asked_to_end(rig: Rig, admin: Visitor) -> None:
    await rig.accept("hello")
    await rig.lease(KEY)
    page = await admin.press(await admin.page("/conversation", key=KEY), "Stop the turn")
    assert "The running turn was asked to end." in page.text
    assert (await admin.post("/conversation/stop", key=key_of("nobody"))).status_code == 409


async def test_a_waiting_message_is_dropped(rig: Rig, admin: Visitor) -> None:
    accepted = await rig.accept("hello")
    page = await admin.press(await admin.page("/messages", id=accepted.id), "Drop this message")
    assert "The message was dropped." in page.text and "rejected" in page.text
    assert await done(rig.pipe) == [("drop message", accepted.id, "done")]


async def test_a_session_is_exported_whole(rig: Rig, admin: Visitor) -> None:
    await rig.accept("hello")
    await rig.run_turns()
    session = await rig.pipe.store.sessions.find(KEY)
    assert session is not None
    answer = await admin.post("/session/export", id=session["id"])
    lines = [orjson.loads(line) for line in answer.content.splitlines()]
    assert [line.get("text") for line in lines] == [None, "hello", "echo: hello"]
    assert answer.headers["content-disposition"] == f'attachment; filename="{session["id"]}.jsonl"'
    assert await done(rig.pipe) == [("export session", session["id"], "done")]


async def test_a_session_is_deleted_after_a_second_look_and_only_as_it_was_seen(rig: Rig, admin: Visitor) -> None:
    await rig.accept("hello")
    await rig.run_turns()
    session = await rig.pipe.store.sessions.find(KEY)
    assert session is not None
    asked = await admin.press(await admin.page("/session", id=session["id"]), "Delete…")
    assert "Delete this session?" in asked.text and await rig.transcript() == ["hello", "echo: hello"]
    await rig.accept("more")
    await rig.run_turns()
    form = next(form for form in asked.forms if "Delete it for good" in form.buttons)
    assert (await admin.post(form.action, **form.fields)).status_code == 409
    asked = await admin.press(await admin.page("/session", id=session["id"]), "Delete…")
    assert "are gone" in (await admin.press(asked, "Delete it for good")).text
    assert await rig.transcript() == []
    assert [outcome.partition(":")[0] for *_, outcome in await done(rig.pipe)] == ["failed", "done"]


async def test_every_button_of_a_change_has_its_command_beside_it(rig: Rig, admin: Visitor) -> None:
    accepted = await rig.accept("hello")
    await rig.lease(KEY)
    assert f"keyturn keys stop {KEY}" in (await admin.page("/conversation", key=KEY)).text
    id = await a_dead_letter(rig, "hello", "c2")
    assert f"keyturn dead replay {id}" in (await admin.page("/dead/letter", id=id)).text
    assert f"keyturn messages drop {accepted.id} --quiet" in (await admin.page("/messages", id=accepted.id)).text
    assert len(FORMS) > 10


async def test_every_command_that_a_page_shows_is_one_that_the_command_line_takes(rig: Rig, admin: Visitor) -> None:
    accepted = await rig.accept("hello")
    await rig.run_turns()
    session = await rig.pipe.store.sessions.find(KEY)
    assert session is not None
    letter = await a_dead_letter(rig, "hello", "c2")
    await rig.accept("again")
    await rig.lease(KEY)
    await pause(rig.pipe, "platform:webhook", by="ann")
    asked = [
        *(room.path for room in PAGES if room.path != "/live"),
        *(link("/conversation", key=key) for key in (KEY, "to:webhook:c1")),
        link("/messages", id=accepted.id),
        link("/dead/letter", id=letter),
        link("/session", id=session["id"]),
        *(link("/sessions", q=words) for words in ("hello", "-x", "--owner '")),
    ]
    shown = {line for path in asked for line in _commands((await admin.get(path)).text)}
    assert len(shown) > 20 and {"keyturn sessions search hello", "keyturn sessions search -- -x"} < shown
    for line in sorted(shown):
        _understood(line)


def _commands(html: str) -> list[str]:
    return [unescape(line) for line in re.findall(r"<code>(keyturn [^<]*)</code>", html)]


def _understood(line: str) -> None:
    """Refused as the command line would refuse it; nothing is run."""
    name, *words = shlex.split(line)
    found: Any = command()
    while hasattr(found, "commands"):
        name, *words = words
        found = found.commands[name]
    found.make_context(name, words)


async def test_settings_in_force_show_no_secret(admin: Visitor) -> None:
    page = await admin.page("/settings")
    assert "KEYTURN_LEASE_SECONDS" in page.text and "KEYTURN_API__KEYS" in page.text
    for secret in filter(None, admin.pipe.settings.secret_values()):
        assert secret not in page.html


# -- live


async def test_the_overview_is_followed_live(rig: Rig, pipe: Pipeline) -> None:
    async with following(pipe) as events:
        assert "nobody waits" in await anext(events)
        await rig.accept("hello")
        await until_said(events, "No worker is alive, and 1 conversation waits")


async def test_a_page_that_is_followed_says_that_redis_is_away_and_back(
    make_settings: Callable[..., Settings], tmp_path: Path
) -> None:
    away = ValkeyOutage(tmp_path / "valkey")
    async with open_pipeline(make_settings(redis_url=SecretStr(away.url))) as pipe, following(pipe) as events:
        await until_said(events, "No worker is alive")
        away.stop()
        html = await until_said(events, "Redis does not answer.")
        assert "<strong>0</strong>" not in html.partition('id="tile-rate"')[0] and "nobody waits" not in html
        assert "Redis does not answer, so no worker is known." in html
        away.start()
        await until_said(events, "No worker is alive")
    away.stop()


def test_a_page_hears_of_an_outage_within_five_seconds() -> None:
    """A look that is not answered ends, and the page is told with the next event."""
    assert ANSWER_SECONDS + EVERY_SECONDS <= 4.5


@on_sqlite
async def test_a_page_that_is_followed_waits_for_all_stores_at_once(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each that is silent would take its own time, one after the other."""
    begun = asyncio.Event()

    async def look(pipe: Pipeline) -> Overview:
        begun.set()
        return await overview(pipe)

    async def held(_: Pipeline) -> tuple[Pause, ...]:
        await begun.wait()
        return (Pause("all", ScopeKind.ALL, "all", "ann", datetime.now(UTC), 1, 0, 0),)

    monkeypatch.setattr(watch, "overview", look)
    monkeypatch.setattr(watch, "pauses_now", held)
    desk = Desk(pipe)
    login = desk.logins.exchange(desk.logins.make_token("ann", Role.VIEW))
    assert login is not None
    events = live._events(desk, Visit(Request({"type": "http"}), login, Form({})), asyncio.Event())
    assert "Paused: everything." in Page(orjson.loads((await anext(events)).partition(b"data: ")[2])["html"]).text
    await events.aclose()


@on_sqlite
async def test_what_nobody_could_tell_is_no_zero_in_the_charts(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(pipe: Pipeline) -> Overview:
        return Overview(datetime.now(UTC), (), (), 1, 0, None)

    monkeypatch.setattr(watch, "overview", away)
    looking = watch.Watch(pipe)
    looking._note(await looking.look())
    assert list(looking.samples) == [watch.Sample(None, None, None, None)]


async def test_the_live_overview_ends_with_the_session(pipe: Pipeline) -> None:
    async with following(pipe) as events:
        await anext(events)
        for path in (pipe.settings.data_dir / "dashboard").iterdir():
            path.unlink()
        async with asyncio.timeout(60):
            assert [html async for html in events][1:] == []  # one may have been on its way


@asynccontextmanager
async def following(pipe: Pipeline) -> AsyncIterator[AsyncIterator[str]]:
    """The HTML of the live overview as it comes, from a server with a socket."""
    logins = LoginFiles(pipe.settings.data_dir)
    async with serving(pipe) as url, httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
        token = logins.make_token("ann", Role.VIEW)
        await client.post("/login", data={"token": token}, headers=SAME_ORIGIN)
        async with client.stream("GET", "/live") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield (orjson.loads(line[6:])["html"] async for line in answer.aiter_lines() if line.startswith("data: "))


async def until_said(events: AsyncIterator[str], words: str) -> str:
    async with asyncio.timeout(60):
        while words not in Page(html := await anext(events)).text:
            pass
    return html


# -- replies that wait


async def test_replies_that_wait_for_a_chat_are_sent_now_or_given_up_and_the_audit_log_says_so(
    rig: Rig, admin: Visitor, viewer: Visitor
) -> None:
    await rig.accept("hello")
    await rig.run_turns(KEY)
    to, store = "to:webhook:c1", rig.pipe.store
    await store.closed_chats.close(to, "blocked")
    page = await admin.page(f"/conversation?key={to}")
    assert "Send now" in page.text and f"keyturn deliveries drop {to}" in page.text
    assert "Send now" not in (await viewer.page(f"/conversation?key={to}")).text
    assert (await viewer.post("/deliveries/release", to=to)).status_code == 403
    released = await admin.post("/deliveries/release", to=to)
    assert released.status_code == 303 and not await store.closed_chats.page(after="", limit=10)
    assert (await admin.post("/deliveries/drop", to=to)).status_code == 303
    assert await store.outbox.open_parts(to, 10) == []
    assert (await admin.post("/deliveries/drop", to=to)).status_code == 409
    assert (await admin.post("/deliveries/release", to="nowhere")).status_code == 409
    assert [row[:2] for row in await done(rig.pipe) if row[2] == "done"] == [
        ("release chat", to),
        ("drop replies", to),
    ]
