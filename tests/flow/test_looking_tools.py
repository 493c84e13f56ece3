"""Tools with which a model looks something up: it finds what the user may see where they read it, and nothing else."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from shared.agent.turn import Speaker
from shared.messages import Source
from shared.pipeline import open_pipeline
from shared.public_http import PublicHttp, open_public_http
from shared.settings import MemorySettings, Settings
from tests.flow.test_own_tools import asked, calling, config, says
from tests.flow.test_search import say
from tests.store.books import ask
from tests.support.openai import a_call, open_provider
from tests.support.pipe import Rig, an_inbound, key_of
from workers.agents.tools.tool import CallContext
from workers.side.looking_tools import (
    ELSEWHERE,
    NOTE_MOST,
    PAGE_CHARACTERS,
    WORDS_MOST,
    memory_tools,
    search_tools,
    web_tools,
)
from workers.side.page_text import page_text

MakeSettings = Callable[..., Settings]
OWNER = "webhook:u=u1"
TASK = "agent:main:task:dm:t1"
PAGE = """<html><head><title>Out of sight</title><style>p {}</style></head><body><script>alert(1)</script>
<h1>Herons &amp; more</h1><p>They <b>eat</b>
fish.</p><ul><li>one<li>two</ul></body></html>"""


def context(session_key: str = "", source: Source | None = None, *, is_scheduled: bool = False) -> CallContext:
    here = source or an_inbound().source
    return CallContext("key", Speaker(OWNER), session_key or key_of(), "run_1", here, is_scheduled)


async def test_a_model_finds_what_the_user_said_in_another_conversation(make_settings: MakeSettings) -> None:
    find = a_call("conversation_search", '{"words": "heron"}')
    async with open_provider(answer=says(calling(find), "done")) as provider:
        settings = config(provider).model_copy(update={"own_tools": ("search",)})
        async with open_pipeline(make_settings(llm=settings, titles=False)) as pipe:
            await say(Rig(pipe), "the code word is heron", chat="c2")
            rows = await asked(pipe, provider, agent=settings)
    assert "the code word is «heron»" in rows[2]


async def test_a_search_brings_nothing_private_into_a_group_nor_into_an_answer_that_goes_elsewhere(rig: Rig) -> None:
    await say(rig, "the code word is heron", chat="c2")
    [search] = search_tools(rig.pipe)
    group = replace(an_inbound().source, chat="g1", chat_type="group")
    found = {
        "here": await search.run({"words": "heron"}, context()),
        "group": await search.run({"words": "heron"}, context("agent:main:webhook:group:g1:u=u1", group)),
        "schedule": await search.run({"words": "heron"}, context(is_scheduled=True)),
        "task": await search.run({"words": "heron"}, context("agent:main:task:dm:t1")),
    }
    assert "«heron»" in found.pop("here")
    assert found == {"group": "Nothing was found.", "schedule": ELSEWHERE, "task": ELSEWHERE}


async def test_a_note_of_the_models_is_kept_once_and_is_the_users_to_read_and_delete(rig: Rig) -> None:
    await say(rig, "hello")
    listed, add = memory_tools(rig.pipe)
    note = {"note": "likes\nherons"}
    assert await listed.run({}, context()) == "Nothing is noted."
    assert await add.run(note, context()) == "Noted."
    assert await add.run(note, context()) == "That is noted already."
    assert await listed.run({}, context()) == "- likes herons"
    stranger = replace(an_inbound().source, user="u2")
    assert await listed.run({}, context(source=stranger)) == "Nothing is noted."
    assert "1. likes herons" in await say(rig, "/memory")
    assert "forgotten: likes herons" in await say(rig, "/memory forget 1")
    assert await listed.run({}, context()) == "Nothing is noted."


@pytest.mark.parametrize("note", ["", " \n ", "x" * (NOTE_MOST + 1)])
async def test_a_note_without_words_or_with_too_many_is_refused(rig: Rig, note: str) -> None:
    await say(rig, "hello")
    listed, add = memory_tools(rig.pipe)
    assert (await add.run({"note": note}, context())).startswith("Not done")
    assert await listed.run({}, context()) == "Nothing is noted."


@pytest.mark.parametrize("note", ["x", "x" * NOTE_MOST])
async def test_a_note_of_one_character_and_one_of_as_many_as_may_be_are_kept(rig: Rig, note: str) -> None:
    await say(rig, "hello")
    listed, add = memory_tools(rig.pipe)
    assert await add.run({"note": note}, context()) == "Noted."
    assert await listed.run({}, context()) == f"- {note}"


async def test_whoever_has_no_name_here_but_another_id_has_their_own_notes(rig: Rig) -> None:
    await say(rig, "hello")
    listed, add = memory_tools(rig.pipe)
    by_other_id = replace(an_inbound().source, user=None, user_alt="u1")
    assert await add.run({"note": "likes herons"}, context(source=by_other_id)) == "Noted."
    assert await listed.run({}, context()) == "- likes herons"


async def test_where_memory_is_off_or_an_answer_goes_elsewhere_a_model_neither_notes_nor_reads(
    make_settings: MakeSettings,
) -> None:
    for enabled, where in ((False, context()), (True, context(is_scheduled=True)), (True, context(TASK))):
        async with open_pipeline(make_settings(memory=MemorySettings(enabled=enabled))) as pipe:
            listed, add = memory_tools(pipe)
            assert await listed.run({}, where) == await add.run({"note": "likes herons"}, where) == ELSEWHERE
            assert await ask(pipe.store, "SELECT id FROM notes") == []


async def test_a_search_needs_a_word_and_a_name_and_takes_so_many_characters(rig: Rig) -> None:
    await say(rig, "the code word is heron", chat="c2")
    [search] = search_tools(rig.pipe)
    assert await search.run({"words": " "}, context()) == "Not done: there is no word to look for."
    nobody = replace(context(), speaker=Speaker(""))
    assert await search.run({"words": "heron"}, nobody) == ELSEWHERE
    assert "«heron»" in await search.run({"words": " " * (WORDS_MOST - 5) + "heron"}, context())
    assert "«heron»" not in await search.run({"words": " " * (WORDS_MOST - 4) + "heron"}, context())
    found = await search.run({"words": "heron"}, context())
    assert found[:3] == "202" and found[10:11] == " " and "\n" not in found


@asynccontextmanager
async def a_site() -> AsyncIterator[str]:
    async def page(request: web.Request) -> web.Response:
        name = request.path.removeprefix("/")
        if name == "long":
            return web.Response(text="x" * (PAGE_CHARACTERS + 1), content_type="text/plain")
        if name == "huge":
            return web.Response(text="x" * 3_000_000, content_type="text/plain")
        if name == "picture":
            return web.Response(body=b"\x89PNG\0", content_type="image/png")
        if name == "away":
            raise web.HTTPFound("http://169.254.169.254/latest/meta-data")
        return web.Response(text=PAGE, content_type="text/html") if name == "page" else web.Response(status=404)

    app = web.Application()
    app.router.add_get("/{name}", page)
    async with TestServer(app) as server:
        yield str(server.make_url("/"))


def own() -> AbstractAsyncContextManager[PublicHttp]:
    return open_public_http(("127.0.0.1",))


async def test_a_page_is_read_as_a_person_would_and_all_else_is_refused_with_a_reason(rig: Rig) -> None:
    async with a_site() as site:
        [fetch] = web_tools(rig.pipe, own)
        read = {
            name: await fetch.run({"url": site + name}, context())
            for name in ("page", "long", "huge", "picture", "away", "none")
        }
        [guarded] = web_tools(rig.pipe)
        refused = [
            await guarded.run({"url": url}, context()) for url in (site + "page", "https://127.0.0.1/", "file:///etc")
        ]
    assert read["page"] == "Herons & more\nThey eat fish.\none\ntwo"
    assert read["long"] == "x" * PAGE_CHARACTERS + "\n(There is more.)"
    assert read["huge"].startswith("Not read") and read["picture"] == "Not read: it is no text."
    assert read["away"].startswith("Not read: only https") and read["none"] == "Not read: the server answered 404."
    assert all(answer.startswith("Not read: ") for answer in refused)


@pytest.mark.parametrize(
    "piece",
    [
        "<a ",
        "<!--",
        "<",
        "</",
        "<!",
        "<?",
        "<![CDATA[",
        "<svg>",
        "<b> ",
        "<p> ",
        "</p>",
        "&",
        "<a b='",
        '<a "',
        "<script>",
        "&#1",
    ],
)
def test_a_hostile_page_is_read_in_time_that_grows_with_its_length_alone(piece: str) -> None:
    began = time.process_time()
    for page in (piece, f"<svg>{piece}</p>", f"x{piece}>"):
        page_text((page * (30_000 // len(page))).encode(), "text/html")
    page_text(b"a-" + b"z9" * 200_000, "text/plain; charset=punycode")
    page_text(f"&#{'1' * 10_000};".encode(), "text/html")
    assert time.process_time() - began < 2


def test_what_a_person_reads_of_a_page_is_kept_whatever_its_markup_lacks() -> None:
    for page in (
        "<html><head><title>x</title><body>one<p>two",
        "<HEAD><Style>p{}</STYLE></HEAD>one<!-- <p>no --><DIV>two</DIV>",
        "one<br>two<script>if (1 < 2) no()</script >",
        "<p>one</p><svg><p>no</p></svg>\n two <!-- never closed <p>no",
        "<p title='x'>one<p>tw&#111;&nbsp;",
    ):
        assert page_text(page.encode(), "text/html") == "one\ntwo", page
    assert page_text(b"1 < 2 and <b>bold</b>, 3 <", "text/html") == "1 < 2 and bold, 3 <"


def test_a_page_with_a_charset_that_nobody_knows_is_read_all_the_same() -> None:
    assert page_text("grün".encode(), "text/plain; charset=klingon") == "grün"
    assert page_text("grün".encode("latin-1"), "text/html; charset=latin-1") == "grün"
    assert page_text(b"\0\1", "text/plain") is None
