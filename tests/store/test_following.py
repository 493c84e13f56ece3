"""A chat with a new id: every conversation of it follows, one commit each, and turns go on meanwhile."""

from __future__ import annotations

import asyncio

from shared.errors import Superseded
from shared.messages import Entry, Mail, Source
from shared.session_key import SessionKey
from shared.store import Store
from shared.store.change import Commit
from shared.store.following import follow_chat
from tests.store.books import accept, load, proof
from tests.support.pipe import an_inbound


async def talk(store: Store, key: SessionKey, text: str) -> str:
    """A turn of a key, as a worker does it: what is refused is done again on what is there now. The session's id."""
    inbound = an_inbound(text, chat=key.chat)
    mail = Mail((await accept(store, inbound, key=str(key))).seq, inbound)
    while True:
        session = await load(store, str(key))
        entries = [Entry("user", text, inbound.id)]
        try:
            committed = await store.commit(Commit(session, str(key), proof(), (mail,), entries))
        except Superseded:
            continue
        return committed.session.id


def key_in(chat: str, user: str = "1", **fields: str) -> SessionKey:
    source = Source("telegram", chat, fields.pop("chat_type", "group"), user=user, **fields)
    return SessionKey.for_source(source)


async def texts(store: Store, key: SessionKey) -> list[str]:
    return [entry.text for entry in (await load(store, str(key))).history]


async def test_all_conversations_of_the_chat_follow_and_no_others(store: Store) -> None:
    theirs = [key_in("-4100", "1"), key_in("-4100", "2"), key_in("-4100", thread="7")]
    others = [key_in("-41001"), key_in("-410"), key_in("-4100", account="2"), key_in("4100", chat_type="dm")]
    for key in (*theirs, *others):
        await talk(store, key, f"in {key}")
    assert await follow_chat(store.database, "telegram", "", "-4100", "-1001") == 3
    for key in theirs:
        new = SessionKey.parse(str(key).replace("-4100", "-1001"))
        assert await texts(store, new) == [f"in {key}"]
    found = {row["session_key"] for row in await store.sessions.listed(100)}
    assert {str(key) for key in others} <= found and not {str(key) for key in theirs} & found
    assert await follow_chat(store.database, "telegram", "", "-4100", "-1001") == 0


async def test_mail_of_the_old_key_still_ends_in_the_conversation(store: Store) -> None:
    old, new = key_in("-4100"), key_in("-1001")
    await talk(store, old, "before")
    await follow_chat(store.database, "telegram", "", "-4100", "-1001")
    await talk(store, old, "on the way")
    await talk(store, new, "after")
    assert await texts(store, new) == ["before", "on the way", "after"]


async def test_a_move_and_turns_at_once_lose_nothing(store: Store) -> None:
    old, new = key_in("-4100"), key_in("-1001")
    session_id = await talk(store, old, "0")

    async def move() -> int:
        return await follow_chat(store.database, "telegram", "", "-4100", "-1001")

    async def turns() -> int:
        for n in range(1, 6):
            await talk(store, old, str(n))
        return 0

    moved = await asyncio.gather(move(), move(), move(), turns())
    assert sum(moved) >= 1  # all that won said so; the others found it done
    rows = await store.sessions.messages(session_id, 100)
    assert [row["text"] for row in rows] == ["0", "1", "2", "3", "4", "5"]
    assert (await load(store, str(new))).id == session_id
