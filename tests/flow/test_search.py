"""/search in a chat and `keyturn sessions search`, through the real pipeline."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.pipeline import Pipeline
from shared.session_key import SessionKey
from tests.flow.test_cli import Cli, cli, environment, lone_cli  # noqa: F401 (fixtures)
from tests.store.books import indexed_rows, write
from tests.support.pipe import Rig, key_of
from tests.support.working import working


async def say(rig: Rig, text: str, *, chat: str = "c1", **source: Any) -> str:
    """Send a message, run its turn, and give back the reply."""
    accepted = await rig.accept(text, chat=chat, **source)
    await rig.run_turns(accepted.session_key)
    return (await rig.pipe.store.outbox.open_parts(f"to:webhook:{chat}", 1000))[-1].text


async def session_of(rig: Rig, chat: str) -> dict[str, Any]:
    row = await rig.pipe.store.sessions.find(key_of(chat))
    assert row is not None
    return row


async def test_search_finds_another_session_of_mine_and_says_how_to_go_on_there(rig: Rig) -> None:
    await say(rig, "the heron stands in the river", chat="a")
    await say(rig, "/title Birds", chat="a")
    await say(rig, "今天讨论苍鹭", chat="b")
    one, other = await session_of(rig, "a"), await session_of(rig, "b")
    answer = await say(rig, "/search heron", chat="c")
    assert "“Birds”" in answer and "«heron»" in answer and f"/resume {one['id']}" in answer
    assert other["id"] not in answer
    assert f"/resume {other['id']}" in await say(rig, "/search 鹭", chat="c")
    assert "this conversation" in await say(rig, "/search heron", chat="a")
    assert "Nothing found" in await say(rig, "/search flamingo", chat="c")


async def test_hits_are_numbered_from_one_and_say_in_how_many_more_rows_the_words_are(rig: Rig) -> None:
    for chat in ("a", "a", "b"):  # echo says it again
        await say(rig, "a heron", chat=chat)
    newer, older = (await say(rig, "/search heron", chat="c")).split("\n\n")
    assert newer.startswith("1. ") and "(and 1 more)" in newer
    assert older.startswith("2. ") and "(and 3 more)" in older
    await say(rig, "/title Birds", chat="b")
    await write(
        rig.pipe.store,
        "UPDATE messages SET text = 'an egret' WHERE role = 'user' AND session_id = :id",
        id=(await session_of(rig, "b"))["id"],
    )
    assert " more" not in (await say(rig, "/search egret", chat="c"))


@pytest.mark.parametrize("text", ["/search", "/search ?!"])
async def test_search_without_words_tells_how_to_use_it(rig: Rig, text: str) -> None:
    assert "/search words" in await say(rig, text)


async def test_search_in_a_group_shows_nothing_from_elsewhere(rig: Rig) -> None:
    """Others read what is answered in a group: a person's direct messages are not shown there."""
    await say(rig, "a private heron", chat="dm")
    await say(rig, "a public heron", chat="g", chat_type="group")
    answer = await say(rig, "/search heron", chat="g", chat_type="group")
    assert "public" in answer and "private" not in answer
    assert "private" in await say(rig, "/search heron", chat="dm")


async def test_the_housekeeper_indexes_what_was_said(rig: Rig, pipe: Pipeline) -> None:
    async with working(pipe):
        await rig.accept("a heron", chat="a")
        async with asyncio.timeout(30):
            while len(await indexed_rows(pipe.store)) < 2:
                await asyncio.sleep(0.05)
    found = await pipe.store.search.find("heron", "webhook:u=u1")
    assert found is not None and [hit.rows for hit in found.hits] == [2]


async def test_an_operator_searches_everybody_or_one_owner(rig: Rig, cli: Cli) -> None:  # noqa: F811
    await say(rig, "a heron", chat="a")
    await say(rig, "a heron too", chat="g", chat_type="group", user_alt="alt9")
    group = str(SessionKey("main", "webhook", "", "group", "g", user_alt="alt9"))

    async def keys(*arguments: str) -> list[str]:
        printed = await cli("sessions", "search", *arguments, "--json")
        assert printed.code == 0, printed.err
        return sorted(hit["session_key"] for hit in printed.json["hits"])

    assert await keys("heron") == sorted([key_of("a"), group])
    assert await keys("heron", "--owner", "webhook:u=u1") == [key_of("a")]
    assert await keys("heron", "--key", group) == [group]
    assert "echo: a «heron» too" in (await cli("sessions", "search", "heron", "too")).out
    assert "nothing found" in (await cli("sessions", "search", "flamingo")).out
    for refused in (["?!"], ["x", "--key", "agent:main:webhook:dm:nobody"], ["x", "--key", "k", "--owner", "o"]):
        assert (await cli("sessions", "search", *refused)).code != 0
