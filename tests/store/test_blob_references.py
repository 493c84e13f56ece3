"""A file is referred to as soon as, and only if, a commit says its name; and no longer when its conversation is deleted."""

from __future__ import annotations

import pytest

from shared.blobs.address import Blob
from shared.errors import Superseded
from shared.messages import Entry, Media, Reply, Session
from shared.store import Store
from shared.store.branches import branch_into
from shared.store.change import Change, Commit
from tests.store.books import ask, load, mail, proof
from tests.support.pipe import key_of

SAID, ANSWERED, NOBODYS = (Blob(character * 64, 3) for character in "abc")
EVERY = [SAID.digest, ANSWERED.digest, NOBODYS.digest]


def file(blob: Blob) -> Media:
    return Media(str(blob), "image/png", "a.png")


async def commit_files(store: Store, session: Session) -> None:
    letter = await mail(store)
    rows = (Entry("user", "look", letter.inbound.id, {"media": (file(SAID), Media("https://x.example/a.png"))}),)
    replies = (Reply("here", (file(ANSWERED), file(SAID))),)
    await store.commit(Commit(session, key_of(), proof(), (letter,), rows, replies))


async def test_files_of_rows_and_of_replies_are_referred_to_by_their_commit(store: Store) -> None:
    assert await store.blob_references.unreferred(EVERY) == EVERY
    await commit_files(store, await load(store))
    assert await store.blob_references.unreferred(EVERY) == [NOBODYS.digest]
    await commit_files(store, await load(store))  # the same files again
    assert await store.blob_references.unreferred(EVERY) == [NOBODYS.digest]


async def test_a_commit_that_lost_refers_to_nothing(store: Store) -> None:
    stale = await load(store)
    letter = await mail(store)
    await store.commit(Commit(stale, key_of(), proof(), (letter,), (Entry("user", "hello"),)))
    with pytest.raises(Superseded):
        await commit_files(store, stale)
    assert await store.blob_references.unreferred(EVERY) == EVERY


async def test_a_deleted_conversation_refers_to_nothing(store: Store) -> None:
    await commit_files(store, await load(store))
    session = await load(store)
    assert await store.delete(session.id, session.version)
    assert await store.blob_references.unreferred(EVERY) == EVERY


async def test_a_branch_refers_to_the_files_of_its_rows_when_its_session_is_gone(store: Store) -> None:
    await commit_files(store, await load(store))
    session = await load(store)
    branch = branch_into("ses_branch", 1, None, None)
    await store.commit(Commit(session, key_of(), proof(), change=Change(switch_to="ses_branch", also=branch)))
    [moved] = await ask(store, "SELECT version FROM sessions WHERE id = :id", id=session.id)
    assert await store.delete(session.id, moved["version"])
    assert await store.blob_references.unreferred(EVERY) == [NOBODYS.digest]
