"""A person who is forgotten leaves no byte: not in a table, not in the index, not in Redis, not in a file. Others lose nothing."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

from shared import keys
from shared.blobs.address import Blob
from shared.codec import encode_text
from shared.context.memory import owner as note_owner
from shared.context.title import first_words
from shared.door import accept
from shared.embedded import running, valkey
from shared.errors import NotFound, Unavailable
from shared.homes import home_fact
from shared.lane import Claim
from shared.mail import decode_inbound, encode_mail
from shared.messages import Inbound, Source
from shared.operating.forgetting import forget_person
from shared.operating.pauses import pause
from shared.output_file import save_output
from shared.person import Person
from shared.pipeline import Pipeline, open_pipeline
from shared.reading.pauses import pauses_now
from shared.reading.person import export_person
from shared.session_key import SessionKey
from shared.settings import Settings
from shared.store.remains import remains
from shared.tasks.starting import TaskAsker, WantedTask, start_task
from shared.tasks.task import TaskKind
from tests.store.books import ask, write
from tests.store.test_deletion import everything, found
from tests.support.door import a_body, open_door
from tests.support.pipe import Rig, an_inbound

CANARY, OTHER = "canaryzyxq", "parrot"
PERSON = Person("local", "user-4711")
DM, OTHERS_DM = "agent:main:local:dm:dm-4711", "agent:main:local:dm:dm-47"


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
    for inbound in (said(CANARY, PERSON.id, "dm-4711"), said(OTHER, "user-47", "dm-47")):
        key, payload = f"agent:main:local:dm:{inbound.source.chat}", encode_mail(inbound).decode()
        await store.dead.set_aside("inbound", inbound.id, key, "error", "as told", payload)
    await beside_conversations(rig)
    await write(store, "INSERT INTO paired VALUES ('local', 'user-4711', NULL, :name, 'op', 1)", name=CANARY)
    for chat in ("dm-4711", "user-4711", "dm-47", "group"):
        await store.closed_chats.close(f"to:local:{chat}", CANARY if "4711" in chat else OTHER)
    while await store.search.index():
        pass
    return first


async def beside_conversations(rig: Rig) -> None:
    """A file in the group, a task that has not begun, a stop, a chat that is closed, a question in the group, a joined session."""
    pipe, store = rig.pipe, rig.pipe.store
    shared = await pipe.blobs.keep(_chunks(f"{CANARY} shared".encode()), 1000)
    [row] = await ask(
        store, "SELECT session_id, n, data FROM messages WHERE text LIKE '%canary% in the group' AND role = 'user'"
    )
    data = orjson.dumps(orjson.loads(row["data"]) | {"media": [{"url": str(shared), "kind": "file"}]}).decode()
    place = {"s": row["session_id"], "n": row["n"]}
    await write(store, "UPDATE messages SET data = :data WHERE session_id = :s AND n = :n", data=data, **place)
    await write(store, "INSERT INTO blob_references VALUES (:d, :s, 1)", d=shared.digest, s=row["session_id"])
    person = said("", PERSON.id, "dm-4711").source
    asker = TaskAsker("agent:main:local:dm:dm-4711", person, "local:u=user-4711")
    await start_task(pipe, WantedTask(TaskKind.BACKGROUND, f"{CANARY} later", "in_1", 1), asker)
    await store.tasks.stop("agent:main:local:dm:dm-4711", 0, 0)
    await store.closed_chats.close("to:local:dm-4711", CANARY)
    await write(
        store, "INSERT INTO facts VALUES (:s, 'joined:agent:main:local:dm:dm-4711', :c)", s=row["session_id"], c=CANARY
    )
    await write(
        store,
        """INSERT INTO asks (id, run_id, session_key, session_id, name, text, choices, is_approval, source, state, answer,
           created_at, ended_at) VALUES ('ask_1', 'run', 'group', :s, 'a', 'which?', '[]', 0, :source, 'answered', :c, 1, 2)""",
        s=row["session_id"],
        source=encode_text(person),
        c=CANARY,
    )


async def _chunks(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def test_a_file_that_somebody_else_brings_while_a_person_is_forgotten_is_kept(
    rig: Rig, pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    await full_life(rig)
    records = await pipe.store.people.records(PERSON)
    assert len(records.blobs) == 2
    path = next(iter(sorted(pipe.settings.data_dir.rglob(records.blobs[0]))))
    content, forget, again = path.read_bytes(), pipe.store.people.forget, list[Blob]()

    async def meanwhile(*args: Any) -> Any:
        again.append(await pipe.blobs.keep(_chunks(content), len(content)))  # a turn that has not committed yet
        return await forget(*args)

    monkeypatch.setattr(pipe.store.people, "forget", meanwhile)
    assert (await forget_person(pipe, PERSON)).files == 1
    assert again and await pipe.blobs.has(again[0])


async def test_a_person_who_is_forgotten_leaves_no_byte_and_others_lose_nothing(
    rig: Rig, pipe: Pipeline, tmp_path: Path
) -> None:
    first = await full_life(rig)
    before = await holders(pipe, tmp_path)
    assert {"messages", "inbox", "outbox", "notes", "schedules", "paired", "redis", "files"} <= before.keys()
    forgotten = await forget_person(pipe, PERSON)
    assert (forgotten.sessions, forgotten.shared_rows, forgotten.messages) == (1, 1, 4)
    assert (forgotten.notes, forgotten.schedules, forgotten.files, forgotten.left) == (1, 1, 2, ())
    if pipe.store.database.dialect == "sqlite":
        await pipe.store.database.vacuum()  # type: ignore[attr-defined]
    left = await holders(pipe, tmp_path)
    # in the group the agent repeated the person's words: those are the agent's, and stay
    repeated = await ask(pipe.store, "SELECT role FROM messages WHERE text LIKE '%canary%'")
    assert [row["role"] for row in repeated] == ["assistant"]
    assert left.keys() <= {"messages", "search_rows", "search_grams_data", "vocabulary"}
    closed = [chat.destination for chat in await pipe.store.closed_chats.page(after="", limit=9)]
    assert closed == ["to:local:dm-47", "to:local:group"]
    assert not (await accept(pipe, first)).fresh
    assert await found(pipe.store, OTHER) != [] and len(await ask(pipe.store, "SELECT id FROM sessions")) == 2
    group = [
        row["text"] for row in await ask(pipe.store, "SELECT text FROM messages WHERE role = 'user' ORDER BY n, text")
    ]
    assert sorted(group) == ["(removed)", OTHER, f"{OTHER} in the group"]
    with pytest.raises(NotFound):
        await forget_person(pipe, PERSON)


async def test_pauses_of_a_persons_conversations_end_and_nothing_stays_parked(rig: Rig, pipe: Pipeline) -> None:
    await rig.run_turns((await accept(pipe, said(CANARY, PERSON.id, "dm-4711"))).session_key)
    scopes = [DM, "to:local:dm-4711", "agent:main:local:dm:user-4711", "to:local:user-4711", OTHERS_DM]
    for scope in scopes:
        await pause(pipe, scope, by="op")
    await accept(pipe, said(CANARY, PERSON.id, "dm-4711"))
    assert await rig.start(pipe.turns, DM) == (Claim.PAUSED, None)
    forgotten = await forget_person(pipe, PERSON)
    assert (forgotten.pauses, forgotten.left) == (4, ())
    assert [held.scope for held in await pauses_now(pipe)] == [OTHERS_DM]
    client: Any = pipe.servers.of_key(DM).client
    assert await client.zcard(keys.parked("turns")) == 0 and list(await client.hgetall(keys.PAUSES)) == [
        OTHERS_DM.encode()
    ]


async def test_the_audit_log_keeps_what_was_done_and_not_to_whom(rig: Rig, pipe: Pipeline) -> None:
    await rig.run_turns((await accept(pipe, said(CANARY, PERSON.id, "dm-4711"))).session_key)
    audit = pipe.store.audit
    for target, outcome in (
        ("agent:main:local:dm:user-4711", "done"),
        (DM, f"failed: the mailbox of {DM} is full: try again"),
        (f"5 letters: kind inbound, key {DM}", "done"),
        ("to:local:user-4711", "done"),
        (OTHERS_DM, "done"),
        ("4711", "done"),
    ):
        await audit.end(await audit.begin("ann", "admin", "look", target), outcome)
    assert (await forget_person(pipe, PERSON)).left == ()
    assert [(row["target"], row["outcome"]) for row in (await audit.page(10**9, 10))[::-1]] == [
        ("forgotten", "done"),
        ("forgotten", "failed: the mailbox of forgotten is full: try again"),
        ("5 letters: kind inbound, key forgotten", "done"),
        ("forgotten", "done"),
        (OTHERS_DM, "done"),
        ("4711", "done"),
    ]
    with pytest.raises(NotFound):
        await forget_person(pipe, PERSON)


async def test_a_message_that_waits_behind_others_leaves_no_words_either(rig: Rig, pipe: Pipeline) -> None:
    """Dropping it touches no session, so nothing else tells that there is more to do."""
    for user, text in (("user-47", OTHER), (PERSON.id, CANARY)):
        await accept(pipe, said(text, user, "group", chat_type="group"))
    assert (await forget_person(pipe, PERSON)).left == ()
    rows = await ask(pipe.store, "SELECT state, payload FROM inbox ORDER BY seq")
    assert [row["state"] for row in rows] == ["pending", "rejected"] and rows[1]["payload"] == ""


async def test_a_shared_conversation_keeps_no_title_and_no_goal_that_are_a_persons_words(
    rig: Rig, pipe: Pipeline
) -> None:
    for user, words, chat in ((PERSON.id, CANARY, "theirs"), ("user-47", OTHER, "others")):
        text = f"{words} is what  this group is about, in more than eight words"
        key = (await accept(pipe, said(text, user, chat, chat_type="group"))).session_key
        await rig.run_turns(key)
        await accept(pipe, said(f"/goal  {words} every\nday", user, chat, chat_type="group"))
        await accept(pipe, said(CANARY, PERSON.id, chat, chat_type="group"))
        await rig.run_turns(key)
        session = await pipe.store.sessions.find(key)
        assert session is not None and await pipe.store.titles.suggest(session["id"], first_words(text))
    assert (await forget_person(pipe, PERSON)).left == ()
    rows = await ask(pipe.store, "SELECT title FROM sessions ORDER BY session_key")
    assert [row["title"] for row in rows] == [f"{OTHER} is what this group is about, in…", None]
    goals = [row["value"] for row in await ask(pipe.store, "SELECT value FROM facts WHERE name = 'goal'")]
    assert len(goals) == 1 and OTHER in goals[0]


@pytest.mark.parametrize(
    ("quote", "by", "is_theirs"),
    [
        (f"Ann: {CANARY} said to others", PERSON.id, True),
        (f"Ann: {OTHER} said to others", "user-47", False),
        (f"Name user-4711: {CANARY} said to others", None, True),  # as older versions kept it
        ("someone: in the group, aloud", None, True),
        (f"someone: @helper {CANARY} in the group, aloud", None, True),
        (f"Name user-47: {OTHER} in the group", None, False),
        (f"someone: {OTHER} in the group", None, False),
    ],
)
async def test_what_others_quoted_of_a_person_goes_and_other_quotes_stay(
    rig: Rig, pipe: Pipeline, quote: str, by: str | None, is_theirs: bool
) -> None:
    for user, text in ((PERSON.id, f"{CANARY} in the group, aloud"), ("user-47", f"{OTHER} in the group")):
        await rig.run_turns((await accept(pipe, said(text, user, "group", chat_type="group"))).session_key)
    answer = said(OTHER, "user-48", "group", chat_type="group")
    answer = replace(answer, earlier=quote, earlier_by=by, reply_to=f"17:{by or 'user-48'}")
    await rig.run_turns((await accept(pipe, answer)).session_key)
    await pipe.store.dead.set_aside("inbound", answer.id, "key", "error", "x", encode_mail(answer).decode())
    await write(pipe.store, "UPDATE dead SET session_key = (SELECT MAX(session_key) FROM sessions)")
    lines = [orjson.loads(line) async for line in export_person(pipe.store, PERSON)]
    assert [line["text"] for line in lines if line["type"] == "quote"] == [quote] * is_theirs
    assert (await forget_person(pipe, PERSON)).left == ()
    for table in ("messages", "inbox", "dead"):
        kept = [row for row in (await everything(pipe.store))[table] if encode_text(quote)[1:-1] in str(row)]
        assert len(kept) == (0 if is_theirs else 1), table
    [row] = await ask(pipe.store, "SELECT data FROM messages WHERE role = 'user' AND data LIKE '%user-48%'")
    assert orjson.loads(row["data"])["sender"] == "Name user-48"
    assert OTHER in decode_inbound((await ask(pipe.store, "SELECT payload FROM dead"))[0]["payload"]).text
    if is_theirs:
        with pytest.raises(NotFound):
            await forget_person(pipe, PERSON)


async def test_a_message_of_somebody_else_that_waits_and_quotes_a_person_is_named_and_then_forgotten(
    rig: Rig, pipe: Pipeline
) -> None:
    answer = replace(said(OTHER, "user-48", "group", chat_type="group"), earlier=f"Ann: {CANARY}", earlier_by=PERSON.id)
    key = (await accept(pipe, answer)).session_key
    assert [one.table for one in (await forget_person(pipe, PERSON)).left] == ["inbox"]
    await rig.run_turns(key)
    assert (await forget_person(pipe, PERSON)).left == ()
    assert CANARY not in str(await everything(pipe.store))


async def test_a_title_that_comes_late_brings_no_words_back(
    rig: Rig, pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model may take a minute over it: it comes while the words are removed, and once more behind that."""
    for user in (PERSON.id, "user-47"):
        key = (await accept(pipe, said(f"{CANARY} of {user[5:7]}", user, "group", chat_type="group"))).session_key
        await rig.run_turns(key)
    session = await pipe.store.sessions.find(key)
    assert session is not None
    read = pipe.store.database.read

    async def then_titled(*steps: Any) -> Any:
        found = await read(*steps)
        if steps[0].statement.name == "called" and found[0][0]["title"] is None:
            assert await pipe.store.titles.suggest(session["id"], f"{CANARY} of 47")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(pipe.store.database, "read", then_titled)
        assert (await forget_person(pipe, PERSON)).left == ()
    assert not await pipe.store.titles.suggest(session["id"], f"{CANARY} of 47")
    await accept(pipe, said(OTHER, "user-47", "group", chat_type="group"))
    await rig.run_turns(key)
    assert not await pipe.store.titles.suggest(session["id"], f"{CANARY} of 47")
    assert await ask(pipe.store, "SELECT title FROM sessions") == [{"title": None}]


async def test_a_home_channel_and_other_facts_that_name_a_person_go_and_those_of_others_stay(
    rig: Rig, pipe: Pipeline
) -> None:
    for user in ("4711", "47"):
        await rig.run_turns((await accept(pipe, said(CANARY, user, user))).session_key)
        for name in ("joined", "merged_ahead"):
            await write(
                pipe.store,
                "INSERT INTO facts VALUES ('of another', :name, '1')",
                name=f"{name}:agent:main:local:dm:{user}",
            )
    home = (Source("local", "4711", user="4711"), Source("telegram", "4711", user="4711"))
    for source in home:
        (scope, name), value = home_fact(source)
        await write(pipe.store, "INSERT INTO facts VALUES (:s, :n, :v)", s=scope, n=name, v=value)
    left = (await forget_person(pipe, Person("local", "4711"))).left
    assert [(one.table, one.rows) for one in left] == [("facts", 1)]  # of telegram's 4711, who is somebody else
    facts = [row["name"] for row in await ask(pipe.store, "SELECT name FROM facts ORDER BY name")]
    assert facts == ["joined:agent:main:local:dm:47", "merged_ahead:agent:main:local:dm:47", "telegram"]
    assert (await forget_person(pipe, Person("telegram", "4711"))).left == ()


@pytest.mark.parametrize("left", ["tasks", "inbox", "messages"])
async def test_background_work_that_a_person_asked_for_in_a_group_leaves_no_words(
    rig: Rig, pipe: Pipeline, left: str
) -> None:
    """The conversation of such a task belongs to the group. `left`: the only table that says by whom it was asked for."""
    for user, text in ((PERSON.id, CANARY), ("user-47", OTHER)):
        asked = said(text, user, "group", chat_type="group")
        key = (await accept(pipe, asked)).session_key
        await rig.run_turns(key)
        asker = TaskAsker(key, asked.source, "local:group:group")
        task = await start_task(pipe, WantedTask(TaskKind.BACKGROUND, f"{text} later", asked.id, 1), asker)
        await rig.run_turns(str(task.key))
    if left != "inbox":
        await write(pipe.store, "UPDATE inbox SET payload = '' WHERE platform = 'task'")
    if left != "tasks":
        await write(pipe.store, "DELETE FROM tasks")
    before = [orjson.loads(line) async for line in export_person(pipe.store, PERSON)]
    assert [line["text"] for line in before if line["type"] == "message" and line["role"] == "user"] == [
        f"{CANARY} later"
    ]
    forgotten = await forget_person(pipe, PERSON)
    assert (forgotten.sessions, forgotten.left) == (1, ())
    said_by_users = [
        row["text"]
        for row in await ask(pipe.store, "SELECT text FROM messages WHERE role = 'user' ORDER BY created_at, n")
    ]
    assert sorted(said_by_users) == ["(removed)", OTHER, f"{OTHER} later"]
    assert f"{CANARY} later" not in str(await everything(pipe.store))


async def test_what_a_person_said_before_a_task_of_somebody_else_in_the_group_goes_too(
    rig: Rig, pipe: Pipeline
) -> None:
    for user, text in ((PERSON.id, CANARY), ("user-47", f"/btw {OTHER}")):
        key = (await accept(pipe, said(text, user, "group", chat_type="group"))).session_key
        await rig.run_turns(key)
    [task] = await pipe.store.tasks.running(key, 2)
    await rig.run_turns(str(task.key))
    rows = await ask(pipe.store, "SELECT session_id FROM messages WHERE role = 'user' AND text LIKE '%canary%'")
    assert len(rows) == len({row["session_id"] for row in rows}) == 2
    assert (await forget_person(pipe, PERSON)).left == ()
    said_by_users = [row["text"] for row in await ask(pipe.store, "SELECT text FROM messages WHERE role = 'user'")]
    assert CANARY not in str(said_by_users) and OTHER in str(said_by_users)


async def test_a_reply_that_answers_others_too_still_leaves(rig: Rig, pipe: Pipeline) -> None:
    ids = [
        await accept(pipe, said(text, user, "group", chat_type="group"))
        for user, text in ((PERSON.id, CANARY), ("user-47", OTHER))
    ]
    await rig.run_turns(ids[0].session_key)
    first, second = [row["turn_id"] for row in await ask(pipe.store, "SELECT turn_id FROM outbox ORDER BY id")]
    # as `collect` leaves it: one turn has ended both
    await write(pipe.store, "UPDATE inbox SET turn_id = :turn", turn=second)
    await write(pipe.store, "DELETE FROM outbox WHERE turn_id = :turn", turn=first)
    await forget_person(pipe, PERSON)
    assert [row["state"] for row in await ask(pipe.store, "SELECT state FROM outbox")] == ["pending"]


async def test_replies_to_messages_whose_words_are_gone_name_the_person_no_more(rig: Rig, pipe: Pipeline) -> None:
    """RETENTION__OUTBOX_DAYS may be more than JOURNAL_DAYS, and what others were answered stays."""
    for user, text in ((PERSON.id, CANARY), ("user-47", OTHER)):
        await rig.run_turns((await accept(pipe, said(text, user, "group", chat_type="group"))).session_key)
    await write(pipe.store, "UPDATE outbox SET state = 'sent'")
    await write(pipe.store, "UPDATE inbox SET payload = ''")
    assert (await forget_person(pipe, PERSON)).left == ()
    assert [OTHER in row["payload"] for row in await ask(pipe.store, "SELECT payload FROM outbox")] == [True]


async def test_a_person_with_two_ids_is_forgotten_and_handed_over_by_either(rig: Rig, pipe: Pipeline) -> None:
    """Sessions are owned under the one id, and rows of a group name the other."""
    for id in ("user-4711", "alt-4711"):
        for chat, kind in (("dm-4711", "dm"), ("group", "group")):
            one = said(CANARY, "user-4711", chat, chat_type=kind)
            one = replace(one, source=replace(one.source, user_alt="alt-4711"))
            await rig.run_turns((await accept(pipe, one)).session_key)
        lines = [orjson.loads(line)["type"] async for line in export_person(pipe.store, Person("local", id))]
        assert {"session", "message", "shared_message"} <= set(lines)
        forgotten = await forget_person(pipe, Person("local", id))
        assert (forgotten.sessions, forgotten.left) == (1, ()) and forgotten.shared_rows >= 1
        rows = await ask(pipe.store, "SELECT text FROM messages WHERE role = 'user'")
        assert {row["text"] for row in rows} == {"(removed)"}


@pytest.mark.parametrize("id", ['a"4711', "a\\4711", "a\t4711", "ü:4711%", "+4711"])
async def test_what_still_names_a_person_is_found_however_their_id_is_written(pipe: Pipeline, id: str) -> None:
    await accept(pipe, said(CANARY, id, "group", chat_type="group"))  # the journal has the id in JSON
    left = await remains(pipe.store.database, id, lambda done, total: None)
    assert "inbox" in {one.table for one in left}


async def test_rows_that_go_while_a_table_is_looked_through_hide_none(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proof of forgetting reads page by page, and retention goes on meanwhile."""
    for n in range(6):
        await write(pipe.store, "INSERT INTO facts VALUES ('of', :name, :id)", name=f"n{n}", id=PERSON.id)
    monkeypatch.setattr("shared.store.remains._PAGE", 2)
    read, facts_read = pipe.store.database.read, 0

    async def first_row_goes(*steps: Any) -> Any:
        nonlocal facts_read
        found = await read(*steps)
        if 'FROM "facts"' in steps[0].statement.sqlite:
            facts_read += 1
            await write(pipe.store, "DELETE FROM facts WHERE name = :name", name=f"n{facts_read - 1}")
        return found

    monkeypatch.setattr(pipe.store.database, "read", first_row_goes)
    left = await remains(pipe.store.database, PERSON.id, lambda done, total: None)
    assert [(one.table, one.rows) for one in left] == [("facts", 6)]


async def test_outputs_of_a_schedule_go_although_forgetting_was_cut_short(
    rig: Rig, pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    await full_life(rig)
    output = await save_output(pipe.settings.data_dir, "sch_1", 1, "key", {}, CANARY)
    forget = pipe.store.people.forget

    async def then_killed(*args: Any) -> None:
        await forget(*args)
        raise Unavailable("killed")

    with monkeypatch.context() as patch:
        patch.setattr(pipe.store.people, "forget", then_killed)
        with pytest.raises(Unavailable):
            await forget_person(pipe, PERSON)
    assert (await forget_person(pipe, PERSON)).left == () and not output.exists()


@pytest.mark.parametrize("others", [False, True])
async def test_files_go_although_forgetting_was_cut_short_behind_the_sessions(
    rig: Rig, pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, others: bool
) -> None:
    """`others`: a file to which somebody else's conversation refers as well."""
    await full_life(rig)
    digests = (await pipe.store.people.records(PERSON)).blobs
    if others:
        await write(
            pipe.store,
            "INSERT INTO blob_references SELECT :d, id, 1 FROM sessions WHERE owner = 'local:u=user-47'",
            d=digests[0],
        )

    async def killed(*args: Any) -> None:
        raise Unavailable("killed")

    with monkeypatch.context() as patch:
        patch.setattr(pipe.store.blob_references, "unreferred", killed)
        with pytest.raises(Unavailable):
            await forget_person(pipe, PERSON)
    assert all([*pipe.settings.data_dir.rglob(digest)] for digest in digests)
    again = await forget_person(pipe, PERSON)
    assert (again.files, again.left) == (2 - others, ())
    assert [digest for digest in digests if [*pipe.settings.data_dir.rglob(digest)]] == [*digests[:1]] * others
    with pytest.raises(NotFound):
        await forget_person(pipe, PERSON)


async def test_the_file_of_the_valkey_that_up_runs_holds_no_word_of_a_person_who_was_forgotten(
    make_settings: Callable[..., Settings], tmp_path: Path
) -> None:
    with running.alone(tmp_path), ExitStack() as stack:
        server = valkey.start(tmp_path / "valkey")
        stack.callback(server.stop)
        settings = make_settings(redis_url=SecretStr(server.url))
        up = running.Running(os.getpid(), "http://127.0.0.1:1", server.url, settings.database, 2, "journal", "echo")
        running.announce(tmp_path, up)
        async with open_pipeline(settings) as pipe:
            for user, text in ((PERSON.id, CANARY), ("user-47", OTHER)):
                await accept(pipe, said(text, user, f"dm-{user}"))
            client: Any = pipe.servers.all[0].client
            await client.execute_command("WAITAOF", 1, 0, 0)  # while it syncs, Valkey holds its next writes back
            assert _words_in(tmp_path / "valkey") == {CANARY, OTHER}
            await forget_person(pipe, PERSON)
            assert _words_in(tmp_path / "valkey") == {OTHER}


def _words_in(directory: Path) -> set[str]:
    written = b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())
    return {word for word in (CANARY, OTHER) if word.encode() in written}


async def test_of_a_conversation_that_was_deleted_before_nothing_names_the_person_either(
    rig: Rig, pipe: Pipeline
) -> None:
    """Several platforms name a private chat by its person."""
    for user in ("4711", "47"):
        await rig.run_turns((await accept(pipe, said(CANARY, user, user))).session_key)
    await rig.run_turns(
        (await accept(pipe, said(OTHER, "48", "4712"))).session_key
    )  # somebody else's chat with such an id
    for row in await ask(pipe.store, "SELECT id, version FROM sessions WHERE owner = 'local:u=4711'"):
        assert await pipe.store.delete(row["id"], row["version"])
    assert (await forget_person(pipe, Person("local", "4711"))).left == ()
    assert {remains.table for remains in (await forget_person(pipe, Person("local", "4712"))).left} >= {"sessions"}
    assert await rig.transcript(str(SessionKey("main", "local", "", "dm", "4712"))) == [OTHER, f"echo: {OTHER}"]


async def test_the_api_knows_no_message_of_a_person_who_was_forgotten(pipe: Pipeline) -> None:
    async with open_door(pipe) as door:
        accepted = (await door.post_api(a_body(id="evt_1"))).json()
        path = f"/v1/messages/{accepted['id']}"
        assert (await door.request("GET", path, door.key)).status_code == 200
        await forget_person(pipe, Person("api", "u1"))
        assert (await door.request("GET", path, door.key)).status_code == 404


async def test_a_person_is_given_all_that_is_kept_of_them_and_nothing_of_others(rig: Rig, pipe: Pipeline) -> None:
    await full_life(rig)
    await pause(pipe, DM, by="op")
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
        "pause",
        "file",
        "inbound",
        "reply",
        "dead_letter",
        "task",
        "question",
    }
    words = {(line["type"], line["state"]) for line in lines if "state" in line and CANARY in str(line)}
    assert words >= {("inbound", "pending"), ("reply", "pending"), ("dead_letter", "open"), ("task", "running")}
    assert ("question", "answered") in words
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
