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
from shared.pieces import AT_MOST, may_go_on
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
    for n in range(AT_MOST + 5):
        await accept(rig.pipe, a_photo(n, text=str(n)))
    first, second = await answers(rig)
    assert AT_MOST == 20
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


def a_piece(text: str, *, sent_at: int = 1000, user: str = "u1") -> Inbound:
    """A message on a platform whose apps cut long texts."""
    said = an_inbound(text, platform="telegram")
    source = replace(said.source, user=user)
    return replace(said, source=source, sent_at=sent_at, received_at=now_ms() - 5000)


async def answers_to(rig: Rig, *said: Inbound) -> list[str]:
    for inbound in said:
        await accept(rig.pipe, inbound)
    key = key_of(platform="telegram")
    await rig.run_turns(key)
    return [text.removeprefix("echo: ") for text in await rig.transcript(key) if text.startswith("echo: ")]


async def test_a_text_that_was_cut_in_several_messages_is_answered_as_one(rig: Rig) -> None:
    """At a line where there is one; in the middle of a word where a message is full."""
    line, full = "a" * 4050, "b" * 4096
    found = await answers_to(rig, a_piece(line), a_piece(full), a_piece("the end"), a_piece("and another"))
    assert found == [f"{line}\n{full}the end", "and another"]


@pytest.mark.parametrize(
    "after",
    [
        a_piece("later", sent_at=9000),
        a_piece("/whoami"),
        replace(a_piece("look"), media=(Media("https://a/1.png", "image/png"),)),
    ],
    ids=["later", "a command", "a photo"],
)
async def test_what_is_no_further_piece_of_a_long_text_is_answered_by_itself(rig: Rig, after: Inbound) -> None:
    long = "a" * 4096
    await answers_to(rig, a_piece(long), after)
    told = await rig.transcript(key_of(platform="telegram"))
    assert f"echo: {long}" in told and not any(text.startswith(f"{long}{after.text}") for text in told)


async def test_pieces_that_come_while_the_first_waits_are_taken_along(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn waits for a second after each piece that looks cut, and for no other."""
    long, waits = "a" * 4096, list[float]()
    coming = iter((replace(a_piece(long), received_at=now_ms() + 60_000), a_piece("end")))

    async def wait(seconds: float) -> None:
        waits.append(seconds)
        await accept(rig.pipe, next(coming))

    monkeypatch.setattr(album, "sleep", wait)
    await accept(rig.pipe, replace(a_piece(long), received_at=now_ms() + 60_000))
    await rig.run_turns(key_of(platform="telegram"))
    assert (await rig.transcript(key_of(platform="telegram")))[0] == f"{long}{long}end"
    assert waits == [album.WAIT_SECONDS] * 2


def test_a_short_message_and_one_on_a_platform_that_cuts_nothing_wait_for_nobody() -> None:
    assert not may_go_on(a_piece("a" * 3999))
    assert not may_go_on(an_inbound("a" * 10_000))
    assert may_go_on(a_piece("\N{GRINNING FACE}" * 2000))  # two units each
