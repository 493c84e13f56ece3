"""A person who is forgotten leaves no byte: not in a table, not in the index, not in Redis, not in a file. Others lose nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from shared.context.memory import owner as note_owner
from shared.door import accept
from shared.errors import NotFound
from shared.messages import Inbound
from shared.operating.forgetting import forget_person
from shared.person import Person
from shared.pipeline import Pipeline, open_pipeline
from shared.reading.person import export_person
from shared.session_key import SessionKey
from shared.settings import Settings
from tests.store.books import ask, write
from tests.store.test_deletion import everything, found
from tests.support.pipe import Rig, an_inbound

CANARY, OTHER = "canaryzyxq", "parrot"
PERSON = Person("local", "user-4711")


@pytest.fixture
async def pipe(make_settings: Callable[..., Settings]) -> AsyncIterator[Pipeline]:
    async with open_pipeline(make_settings(group_sessions_per_user=False)) as opened:
        yield opened


def said(text: str, user: str, chat: str, **about: Any) -> Inbound:
    inbound = an_inbound(text, platform="local", chat=chat, **about)
    return replace(inbound, source=replace(inbound.source, user=user, user_name=f"Name {user}"))


async def full_life(rig: Rig) -> Inbound:
    """A person who talks alone and in a group, is noted, has a file, a schedule and costs, and has a message waiting."""
    pipe, store = rig.pipe, rig.pipe.store
    first = said(CANARY, PERSON.id, "dm-4711")
    for inbound in (first, said(OTHER, "user-47", "dm-47")):
        key = (await accept(pipe, inbound)).session_key
        await rig.run_turns(key)
        owner = note_owner(SessionKey.parse(key), inbound.source.user)
        await write(
            store,
            "INSERT INTO notes (owner, text, session_id, created_at) VALUES (:o, :t, 'gone', 1)",
            o=owner,
            t=inbound.text,
        )
    for user, text in ((PERSON.id, f"{CANARY} in the group"), ("user-47", f"{OTHER} in the group")):
        group = (await accept(pipe, said(text, user, "group", chat_type="group"))).session_key
        await rig.run_turns(group)
    await accept(pipe, said(f"{CANARY} waits", PERSON.id, "dm-4711"))
    [session] = await ask(store, "SELECT id FROM sessions WHERE owner LIKE '%4711'")
    blob = await pipe.blobs.keep(_chunks(CANARY.encode()), 1000)
    await write(store, "INSERT INTO blob_references VALUES (:d, :s, 1)", d=blob.digest, s=session["id"])
    await write(
        store,
        """INSERT INTO schedules (id, name, owner, agent, rule, text, targets, missed, overlap, state, look_at, claim, created_at)
           VALUES ('sch_1', :text, 'local:u=user-4711', 'main', 'at 1', :text, '[]', 'last', 'skip', 'ended', 1, '', 1)""",
        text=CANARY,
    )
    await write(
        store,
        """INSERT INTO usage (session_id, owner, agent, model, day, requests, input, output, cache_read, cache_write, total,
           cost_nano, priced, updated_at) VALUES (:s, 'local:u=user-4711', 'main', 'm', '2026-01-01', 1, 1, 1, 1, 1, 1, 1, 1, 1)""",
        s=session["id"],
    )
    await write(store, "INSERT INTO paired VALUES ('local', 'user-4711', NULL, :name, 'op', 1)", name=CANARY)
    while await store.search.index():
        pass
    return first


async def _chunks(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def test_a_person_who_is_forgotten_leaves_no_byte_and_others_lose_nothing(
    rig: Rig, pipe: Pipeline, tmp_path: Path
) -> None:
    first = await full_life(rig)
    before = await holders(pipe, tmp_path)
    assert {"messages", "inbox", "outbox", "notes", "schedules", "paired", "redis", "files"} <= before.keys()
    forgotten = await forget_person(pipe, PERSON)
    assert (forgotten.sessions, forgotten.shared_rows, forgotten.messages) == (1, 1, 3)
    assert (forgotten.notes, forgotten.schedules, forgotten.files, forgotten.left) == (1, 1, 1, ())
    if pipe.store.database.dialect == "sqlite":
        await pipe.store.database.vacuum()  # type: ignore[attr-defined]
    left = await holders(pipe, tmp_path)
    # in the group the agent repeated the person's words: those are the agent's, and stay
    repeated = await ask(pipe.store, "SELECT role FROM messages WHERE text LIKE '%canary%'")
    assert [row["role"] for row in repeated] == ["assistant"]
    assert left.keys() <= {"messages", "search_rows", "search_grams_data", "vocabulary"}
    assert not (await accept(pipe, first)).fresh
    assert await found(pipe.store, OTHER) != [] and len(await ask(pipe.store, "SELECT id FROM sessions")) == 2
    group = [
        row["text"] for row in await ask(pipe.store, "SELECT text FROM messages WHERE role = 'user' ORDER BY n, text")
    ]
    assert sorted(group) == ["(removed)", OTHER, f"{OTHER} in the group"]
    with pytest.raises(NotFound):
        await forget_person(pipe, PERSON)


async def test_a_person_is_given_all_that_is_kept_of_them_and_nothing_of_others(rig: Rig, pipe: Pipeline) -> None:
    await full_life(rig)
    lines = [orjson.loads(line) async for line in export_person(pipe.store, PERSON)]
    kinds = [line["type"] for line in lines]
    assert kinds[0] == "session" and set(kinds) == {
        "session",
        "message",
        "shared_message",
        "note",
        "schedule",
        "usage",
        "pairing",
        "file",
    }
    assert OTHER not in str(lines)
    with pytest.raises(NotFound):
        [line async for line in export_person(pipe.store, Person("local", "nobody"))]


async def holders(pipe: Pipeline, directory: Path) -> dict[str, int]:
    """Where the canary still is: tables by rows, Redis by names, files."""
    tables = await everything(pipe.store)
    found = {name: sum(CANARY in str(row) for row in rows) for name, rows in tables.items()}
    for server in pipe.servers.all:
        client: Any = server.client
        async for name in client.scan_iter("kt:*"):
            kind = (await client.type(name)).decode()
            value = await (client.zrange(name, 0, -1) if kind == "zset" else client.hgetall(name))
            found["redis"] = found.get("redis", 0) + (CANARY in str(value))
    found["files"] = sum(
        CANARY.encode() in path.read_bytes() for path in (directory / "blobs").rglob("*") if path.is_file()
    )
    return {name: count for name, count in found.items() if count}
