"""Photos that were sent as one are answered as one: those that belong together, in their order, and no others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from shared.clock import now_ms
from shared.context.marks import media_of
from shared.door import accept
from shared.messages import Inbound, Mail, Media
from shared.pipeline import open_pipeline
from shared.settings import Settings
from tests.support.pipe import Rig, an_inbound, key_of
from tests.support.servers import Databases
from workers.turn import album


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


def a_photo(n: int, album: str | None = "a1", text: str | None = None) -> Inbound:
    said = f"photo {n}" if text is None else text
    photo = replace(an_inbound(said), album=album, received_at=now_ms() - 5000)
    return replace(photo, media=(Media(f"https://a/{n}.png", "image/png"),))


async def answers(rig: Rig) -> list[str]:
    await rig.run_turns()
    return [text.removeprefix("echo: ") for text in await rig.transcript() if text.startswith("echo: ")]


async def test_an_album_ends_where_another_message_or_another_album_begins(rig: Rig) -> None:
    for inbound in (a_photo(0), a_photo(1), an_inbound("between"), a_photo(2), a_photo(3, "a2"), a_photo(4, "a2")):
        await accept(rig.pipe, inbound)
    assert await answers(rig) == ["photo 0\nphoto 1", "between", "photo 2", "photo 3\nphoto 4"]


async def test_the_words_and_files_of_an_album_are_those_of_all_its_photos(rig: Rig) -> None:
    for inbound in (a_photo(0, text="look"), a_photo(1, text=""), a_photo(2, text="there")):
        await accept(rig.pipe, inbound)
    assert await answers(rig) == ["look\nthere"]
    session, _ = await rig.pipe.store.transcript.load(key_of(), "")
    assert [media.url for media in media_of(session.history[0])] == [f"https://a/{n}.png" for n in range(3)]


async def test_more_photos_than_any_platform_sends_as_one_are_answered_in_several_turns(rig: Rig) -> None:
    for n in range(album.AT_MOST + 5):
        await accept(rig.pipe, a_photo(n, text=str(n)))
    first, second = await answers(rig)
    assert album.AT_MOST == 20
    assert first.split() == [str(n) for n in range(20)] and second.split() == [str(n) for n in range(20, 25)]


@pytest.mark.parametrize("durability", ["journal", "redis"])
async def test_photos_that_wait_in_redis_alone_are_answered_as_one_too(
    make_settings: Callable[..., Settings], durability: str
) -> None:
    async with open_pipeline(make_settings(durability=durability)) as pipe:
        rig = Rig(pipe)
        ids = [(await accept(pipe, a_photo(n))).id for n in range(3)]
        assert await answers(rig) == ["photo 0\nphoto 1\nphoto 2"]
        rows = [await pipe.store.journal.find(id) for id in ids]
        assert [row["state"] for row in rows if row is not None] == ["answered", "merged", "merged"]
        assert [name for name in await rig.residue() if name.startswith("kt:turns")] == []


async def test_a_photo_that_was_dropped_is_in_no_answer_and_the_others_are(rig: Rig) -> None:
    photos = [a_photo(n) for n in range(3)]
    for photo in photos:
        await accept(rig.pipe, photo)
    assert await rig.pipe.store.reject_waiting(key_of(), Mail(2, photos[1]), (), "operator") is not None
    assert await answers(rig) == ["photo 0\nphoto 2"]
