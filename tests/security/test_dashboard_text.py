"""Strangers' text on the dashboard: whatever it says, and in whichever field, a page shows it as text."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from keyturn.dashboard import render
from keyturn.dashboard.access import Role
from keyturn.dashboard.app import PAGES
from shared.codec import encode_text
from shared.messages import Source
from shared.pipeline import Pipeline
from tests.store.books import write
from tests.support.dashboard import Page, Visitor, visiting
from tests.support.pipe import Rig
from tests.support.servers import Databases

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg onload=alert(1)>",
    "javascript:alert(1)",
    "</textarea></title></style></script><b>bold</b>",
    "{{ 7 * 7 }}{% raw %}",
    "\u202e\u200b\x1b[2J",
    "]]><!--",
)
TEMPLATES = sorted((Path(render.__file__).parent / "templates").glob("*.html"))


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    """Escaping knows no database: one is enough."""
    return databases.fresh_sqlite(tmp_path)


@pytest.fixture
async def admin(pipe: Pipeline) -> AsyncIterator[Visitor]:
    async with visiting(pipe) as visitor:
        await visitor.enter(Role.ADMIN, "<script>alert('name')</script>")
        yield visitor


def harmless(page: Page) -> None:
    """Nothing on the page runs but our own module, and nothing leads elsewhere."""
    scripts = [values for tag, values in page.elements if tag == "script"]
    assert all(re.fullmatch(r"/static/keyturn\.js\?v=[0-9a-f]{12}", values["src"]) for values in scripts)
    assert len(scripts) == page.html.count("<script")
    for tag, values in page.elements:
        assert tag not in ("img", "iframe", "object", "embed", "base"), tag
        assert not [name for name in values if name.startswith("on") or name == "style"], (tag, values)
        for name in ("href", "src", "action", "formaction"):
            assert re.match(r"[/#]", values.get(name, "/")), (tag, values)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
async def test_hostile_text_in_every_field_is_shown_as_text_on_every_page(rig: Rig, admin: Visitor, text: str) -> None:
    source = {"chat_name": text, "user_name": text, "topic": text, "thread": text}
    inbound = await rig.accept(text, chat=text, event_id=text, **source)
    key = inbound.session_key
    await rig.run_turns(key)
    await rig.accept(text, chat=text, event_id=f"{text}-2", **source)
    session = await rig.pipe.store.sessions.find(key)
    assert session is not None
    await rig.pipe.store.dead.set_aside("inbound", text, key, text, text, text)
    await fill(rig, text)
    client = rig.pipe.servers.of_key(key).client
    await client.sadd("rq:workers", f"rq:worker:{text}")
    fields: dict[Any, Any] = {"birth": text, "last_heartbeat": text, "state": text, "queues": text, "running": text}
    await client.hset(f"rq:worker:{text}", mapping=fields)
    pages = [await admin.page(room.path) for room in PAGES if room.path not in LED_TO]
    pages += [
        await admin.page("/conversation", key=key),
        await admin.page("/conversations", q=f"key:{text.split()[0]}"),
        await admin.page("/session", id=session["id"]),
        await admin.page("/sessions", q=text),
        await admin.page("/messages", id=inbound.id),
        await admin.page("/dead/letter", id=1),
        await admin.page("/deliveries", show="flagged"),
        await admin.page("/usage", by="model"),
        await admin.page("/usage", by="user"),
        await admin.act("/conversation/read", key=key),
        await admin.act("/session/read", id=session["id"]),
        await admin.act("/session/delete", id=session["id"]),
        await admin.act("/dead/read", id=1),
        await admin.act("/dead/bulk", action="replay", reason=text),
        await admin.page("/schedule", id=SCHEDULE),
        await admin.act("/schedule/read", id=SCHEDULE),
        await admin.act("/schedule/remove", id=text),
        await admin.page("/question", id=QUESTION),
        await admin.act("/question/read", id=QUESTION),
        await admin.act("/people/look", person="webhook:u1"),
    ]
    for answer in (
        await admin.get("/messages", id=text),
        await admin.get("/conversation", key=text),
        await admin.get("/session", id=text),
        await admin.get("/dead", state=text),
        await admin.post("/dead/one", id="1", action=text),
        await admin.get("/schedule", id=text),
        await admin.get("/question", id=text),
        await admin.post("/people/look", person=text),
        await admin.post("/people/forget", person=f"webhook:{text}", typed="no"),
        await admin.post("/people/forget", person=f"webhook:{text}", typed=f"webhook:{text}"),
        await admin.post("/people/forget/follow", run=text),
        await admin.get(f"/{quote(text, safe='')}"),
        await admin.get("/login", next=text),
    ):
        pages.append(Page(answer.text))
    for page in pages:
        harmless(page)
        assert not re.search("[\u202e\u200b\x1b]", page.html)
    for answer in (  # fields that are sent back to us keep every character
        await admin.post("/schedules/add", when=text, text=text, to=text, name=text, missed=text, window=text),
        await admin.post("/schedules/add", when="@daily", text=text, to="local", missed=text),
        await admin.post("/people/look", person=f"webhook:{text}"),
    ):
        harmless(Page(answer.text))
    shown = " ".join(page.text for page in pages)
    assert re.sub(r"\s+", " ", render.shown(text)).strip() in shown


LED_TO = ("/live", "/conversation", "/session", "/dead/letter", "/schedule", "/question")
SCHEDULE, QUESTION = "sch_hostile", "ask_hostile_000"


async def fill(rig: Rig, text: str) -> None:
    """Put the text into every column that a page shows."""
    quoted = text.replace("'", "''").replace("\x00", "")
    store = rig.pipe.store
    await write(store, f"UPDATE sessions SET title = '{quoted}', end_reason = '{quoted}', ended_at = 1")
    await write(store, f"UPDATE outbox SET state = 'buried', ambiguous = 1, reason = '{quoted}', receipt = '{quoted}'")
    await write(store, f"UPDATE turns SET worker = '{quoted}'")
    await write(store, f"UPDATE inbox SET reason = '{quoted}' WHERE state <> 'pending'")
    await write(
        store,
        "INSERT INTO usage (session_id, owner, agent, model, day, requests, input, output, cache_read, cache_write, total,"
        " cost_nano, priced, updated_at)"
        f" VALUES ('s', '{quoted}', '{quoted}', '{quoted}', date('now'), 1, 1, 1, 1, 1, 1, 1, 1, 1)",
    )
    columns = "(id, name, owner, agent, rule, text, targets, missed, overlap, state, reason, due_at, look_at, claim, created_at)"
    for id, rule in ((SCHEDULE, "every 7200000 from 1"), (f"{SCHEDULE}_{quoted}", quoted)):
        values = (
            f"'{quoted}', 'local', 'main', '{rule}', '{quoted}', '[\"local\"]', 'last', 'skip', 'paused', '{quoted}'"
        )
        await write(store, f"INSERT INTO schedules {columns} VALUES ('{id}', {values}, 1, 1, '', 1)")
    await write(store, f"UPDATE schedules SET owner = '{quoted}'")
    await write(
        store,
        "INSERT INTO schedule_fires (schedule_id, slot, manual, state, reason, inbound_id, created_at)"
        f" VALUES ('{SCHEDULE}', 1, 0, '{quoted}', '{quoted}', '{quoted}', 1)",
    )
    asked = encode_text(Source("webhook", text, user=text, user_name=text)).replace("'", "''")
    choices = encode_text([text]).replace("'", "''")
    await write(
        store,
        "INSERT INTO asks (id, run_id, session_key, session_id, name, text, choices, is_approval, source, state, answer,"
        f" created_at) VALUES ('{QUESTION}', 'run', '{quoted}', 's', 'n', '{quoted}', '{choices}', 1, '{asked}', 'open', '', 1)",
    )
    await write(
        store,
        "INSERT INTO steps (run_id, n, kind, call_id, name, arguments, effect, state, body)"
        f" VALUES ('run', 1, 'call', 'c', '{quoted}', '', '', 'planned', '')",
    )
    await write(store, f"INSERT INTO pause (scope, who, since) VALUES ('{quoted}', '{quoted}', 1)")
    await write(
        store,
        "INSERT INTO audit (at, who, role, action, target, outcome)"
        f" VALUES (1, '{quoted}', '{quoted}', '{quoted}', '{quoted}', '{quoted}')",
    )


async def test_the_exception_text_of_an_agent_is_shown_as_text(rig: Rig, admin: Visitor) -> None:
    await rig.pipe.store.dead.set_aside("inbound", "in_1", None, "agent failed", f"ValueError: {HOSTILE[0]}", "{}")
    page = await admin.press(await admin.page("/dead/letter", id=1), "Show the payload")
    harmless(page)
    assert f"ValueError: {HOSTILE[0]}" in page.text


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_no_template_switches_escaping_off(template: Path) -> None:
    assert not re.search(r"\|\s*safe|autoescape|Markup|xmlattr|style=|\son\w+=", template.read_text())


def test_the_script_never_makes_markup_of_text() -> None:
    script = render.STATIC["keyturn.js"][1].decode()
    assert not re.search(
        r"innerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|outerHTML\s*=[^=]", script
    )
    assert script.count("createHTML") == 3 and len(script.splitlines()) < 300


def test_a_command_beside_a_button_is_one_word_per_value() -> None:
    assert render.command("dead", "replay", "1; rm -rf ~") == "keyturn dead replay '1; rm -rf ~'"
