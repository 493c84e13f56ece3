"""A group that needs a mention: what was sent as one with an addressed message comes along, and nothing else leaves a trace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from producers import hold
from shared.agent.turn import Result, Turn
from shared.failpoints import Injected
from shared.mail import decode_inbound
from shared.messages import Entry, Reply
from shared.operating.pairing import approve_code
from shared.pipeline import Pipeline, open_pipeline
from shared.settings import QuotaSettings, Settings
from tests.flow.test_pairing import code_for
from tests.flow.test_telegram import ANN, SECRET, SUPERGROUP, Hook, block, listening, said
from tests.store.books import ask
from tests.support.door import open_door
from tests.support.outage import ValkeyOutage
from tests.support.telegram import FakeTelegram, open_telegram
from tests.support.uploads import a_png
from tests.support.working import working

BOB, STRANGER, OTHER_GROUP = 12, 666, -1001600
MakeSettings = Callable[..., Settings]
Update = dict[str, Any]
LONG = "a" * 4050  # its app cut it at a line


@pytest.fixture
async def fake() -> AsyncIterator[FakeTelegram]:
    async with open_telegram() as opened:
        opened.files |= {f"photo-{n}": a_png(500 + n) for n in range(3)}
        yield opened


@pytest.fixture
def settings(make_settings: MakeSettings, fake: FakeTelegram) -> Settings:
    return make_settings(telegram=here(fake))


def here(fake: FakeTelegram, **changes: Any) -> Any:
    return block(fake, webhook_secret=(SecretStr(SECRET),), **{"allowed_users": (str(ANN), str(BOB)), **changes})


class Seeing:
    """An agent that remembers what it is shown: the words, and how many bytes each file has."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, list[int]]] = []

    async def run(self, turn: Turn) -> Result:
        [inbound] = turn.mail
        self.seen.append((inbound.text, [int(media.url.rpartition("/")[2]) for media in inbound.media]))
        return Result((Entry("assistant", "seen"),), (Reply(f"seen {len(self.seen)}"),))


@asynccontextmanager
async def at(pipe: Pipeline, fake: FakeTelegram) -> AsyncIterator[Hook]:
    """A receiver. No worker yet: whatever comes has come when the turn begins, on a slow machine too."""
    async with open_door(pipe) as door:
        yield Hook(door, fake)


async def seen_by_the_agent(pipe: Pipeline, fake: FakeTelegram) -> list[tuple[str, list[int]]]:
    agent = Seeing()
    async with working(pipe, agent):
        await fake.until(lambda fake: fake.texts(SUPERGROUP))
    return agent.seen


def unaddressed(text: str, by: int = ANN, chat: int = SUPERGROUP, **message: Any) -> Update:
    """Somebody says something in a group, to others."""
    update = said(text, by, **message)
    update["message"]["chat"] = {"id": chat, "type": "supergroup"}
    update["message"]["from"] = {"id": by, "is_bot": False, "first_name": f"U{by}"}
    return update


def photo(n: int, caption: str = "", **about: Any) -> Update:
    """A photo of Ann's album; with a caption, it mentions the bot."""
    update = unaddressed("", photo=[{"file_id": f"photo-{n}", "width": 9, "height": 9}], media_group_id="7", **about)
    del update["message"]["text"]
    if caption:
        mention = [{"type": "mention", "offset": 0, "length": 11}]
        update["message"] |= {"caption": f"@helper_bot {caption}", "caption_entities": mention}
    return update


def album(addressed: int, name: str = "7") -> list[Update]:
    photos = [photo(n, "look" if n == addressed else "") for n in range(3)]
    for update in photos:
        update["message"]["media_group_id"] = name
    return photos


def sizes(fake: FakeTelegram) -> list[int]:
    return [len(fake.files[f"photo-{n}"]) for n in range(3)]


async def kept(pipe: Pipeline) -> dict[str, bytes]:
    """What is held in Redis, by name."""
    client: Any = pipe.servers.all[0].client
    return {name.decode(): await client.get(name) async for name in client.scan_iter("kt:pieces:*")}


async def states(pipe: Pipeline) -> list[str]:
    return [row["state"] for row in await ask(pipe.store, "SELECT state FROM inbox ORDER BY seq")]


async def journaled(pipe: Pipeline) -> list[str]:
    """The words and files of every accepted message, in the order in which they are answered."""
    rows = await ask(pipe.store, "SELECT payload FROM inbox ORDER BY seq")
    found = [decode_inbound(row["payload"]) for row in rows]
    return [" ".join([one.text, *(media.url.partition(":")[2] for media in one.media)]).strip() for one in found]


# All of it comes along.


@pytest.mark.parametrize("addressed", [0, 1, 2])
async def test_every_photo_of_an_album_comes_along_whichever_of_them_mentions_the_bot(
    pipe: Pipeline, fake: FakeTelegram, addressed: int
) -> None:
    async with at(pipe, fake) as hook:
        await hook.bring(*album(addressed))
    assert await seen_by_the_agent(pipe, fake) == [("look", sizes(fake))]
    assert await states(pipe) == ["answered", "merged", "merged"]


@pytest.mark.parametrize("addressed", [0, 1, 2])
async def test_a_text_that_an_app_cut_comes_whole_whichever_piece_mentions_the_bot(
    pipe: Pipeline, fake: FakeTelegram, addressed: int
) -> None:
    texts = [f"{LONG} one", f"{LONG} two", "three"]
    pieces = [said(text, SUPERGROUP) if n == addressed else unaddressed(text) for n, text in enumerate(texts)]
    async with at(pipe, fake) as hook:
        await hook.bring(*pieces)
        await hook.bring(unaddressed("not to the bot"))
    assert await seen_by_the_agent(pipe, fake) == [("\n".join(texts), [])]
    assert await states(pipe) == ["answered", "merged", "merged"]


async def test_a_photo_that_comes_late_is_taken_and_what_comes_late_of_a_text_is_not(
    pipe: Pipeline, fake: FakeTelegram
) -> None:
    first, second, third = album(0)
    late = unaddressed("late", date=1767225600 + 4)
    async with at(pipe, fake) as hook:
        await hook.bring(first, second, unaddressed("between"), third, said(LONG, SUPERGROUP), late)
    assert await journaled(pipe) == ["look photo-0", "photo-1", "photo-2", LONG]


async def test_the_rest_of_a_long_command_comes_along_and_a_command_is_the_rest_of_nothing(
    pipe: Pipeline, fake: FakeTelegram
) -> None:
    async with at(pipe, fake) as hook:
        await hook.bring(said(f"/ask {LONG}", SUPERGROUP), unaddressed("and its end"))
        await hook.bring(said(LONG, SUPERGROUP), unaddressed("/ask others"))
    assert await journaled(pipe) == [f"/ask {LONG}", "and its end", LONG]


async def test_a_listener_that_polls_takes_an_album_along_too(make_settings: MakeSettings, fake: FakeTelegram) -> None:
    async with open_pipeline(make_settings(telegram=block(fake))) as pipe:
        await fake.bring(*album(2))
        async with listening(pipe):
            await fake.until(lambda fake: not fake.pending())
        assert await journaled(pipe) == ["photo-0", "photo-1", "look photo-2"]


async def test_pieces_that_come_to_several_receivers_find_each_other(settings: Settings, fake: FakeTelegram) -> None:
    async with AsyncExitStack() as stack:
        pipes = [await stack.enter_async_context(open_pipeline(settings)) for _ in range(3)]
        for pipe, update in zip(pipes, album(1), strict=True):
            await (await stack.enter_async_context(at(pipe, fake))).bring(update)
        assert await journaled(pipes[0]) == ["photo-0", "look photo-1", "photo-2"]


async def test_pieces_of_somebody_who_was_paired_come_along_too(
    make_settings: MakeSettings, fake: FakeTelegram
) -> None:
    async with open_pipeline(make_settings(telegram=here(fake, allowed_users=(str(BOB),)))) as pipe:
        async with at(pipe, fake) as hook:
            await hook.bring(said("let me in"))
            async with working(pipe):
                await approve_code(pipe, "telegram", await code_for(hook, ANN), by="test")
            await hook.bring(*album(2))
        assert await journaled(pipe) == ["photo-0", "photo-1", "look photo-2"]


# Nothing else leaves a trace.


async def test_what_nobody_addressed_leaves_no_row_no_reply_and_no_count_and_is_gone_after_a_minute(
    make_settings: MakeSettings, fake: FakeTelegram
) -> None:
    settings = make_settings(telegram=here(fake), quota=QuotaSettings(user_messages_per_minute=100))
    async with open_pipeline(settings) as pipe, at(pipe, fake) as hook:
        client = pipe.servers.all[0].client
        await hook.bring(*album(-1), unaddressed("short"))
        assert not any((await hook.door.stored()).values())
        [name] = [name.decode() async for name in client.scan_iter("*")]
        assert name in await kept(pipe) and 0 < await client.pttl(name) <= 60_000
        await client.delete(name)  # as its end does
        await hook.bring(unaddressed(LONG), unaddressed("and its end"))
        assert not any((await hook.door.stored()).values()) and await kept(pipe) == {}
        await hook.bring(said("to you", SUPERGROUP))
        assert await journaled(pipe) == ["to you"]


async def test_others_photos_do_not_come_along_whatever_album_they_name(pipe: Pipeline, fake: FakeTelegram) -> None:
    mine = photo(0, "look")
    others = [photo(1, by=BOB), photo(1, by=STRANGER), photo(1, chat=OTHER_GROUP), photo(1)]
    others[3]["message"]["media_group_id"] = "8"
    for before_and_after in (others[:2], others[2:]):
        async with at(pipe, fake) as hook:
            await hook.bring(*before_and_after, mine, *before_and_after)
    assert await journaled(pipe) == ["look photo-0"]


async def test_nothing_is_held_of_people_who_may_not_talk(pipe: Pipeline, fake: FakeTelegram) -> None:
    async with at(pipe, fake) as hook:
        await hook.bring(photo(0, by=STRANGER), unaddressed(LONG, by=STRANGER), unaddressed("and", by=STRANGER))
        assert await hook.door.nothing_stored()
        await hook.bring(photo(1, "let me in", by=STRANGER), photo(2, by=STRANGER))
        assert await hook.door.nothing_stored()


async def test_redis_keeps_no_words_and_no_files_of_what_was_accepted(pipe: Pipeline, fake: FakeTelegram) -> None:
    async with at(pipe, fake) as hook:
        await hook.bring(*album(2), unaddressed(f"{LONG} one"), said("two", SUPERGROUP))
        marks = await kept(pipe)
        assert len(marks) == 2
        for word in (b"photo-", b"aaa", b"two", b"source"):
            assert not [mark for mark in marks.values() if word in mark]


async def test_each_photo_counts_against_a_quota_once_it_is_known_to_be_addressed(
    make_settings: MakeSettings, fake: FakeTelegram
) -> None:
    settings = make_settings(telegram=here(fake), quota=QuotaSettings(user_messages_per_minute=2))
    async with open_pipeline(settings) as pipe, at(pipe, fake) as hook:
        await hook.bring(*album(1))
        assert sorted(await states(pipe)) == ["pending", "pending", "rejected"]


# Whatever breaks.


async def test_pieces_that_come_again_are_taken_once_and_in_their_order(pipe: Pipeline, fake: FakeTelegram) -> None:
    photos = album(1)
    async with at(pipe, fake) as hook:
        await hook.bring(*(update for update in photos for _ in range(2)), *photos)
    assert await journaled(pipe) == ["photo-0", "look photo-1", "photo-2"]


POINTS = {
    "pieces.before_keep": "producers.pieces.reach",
    "pieces.after_keep": "producers.pieces.reach",
    "pieces.before_forget": "producers.pieces.reach",
    "accept.before_journal": "shared.door.reach",
    "accept.after_journal": "shared.door.reach",
}


@pytest.mark.parametrize("point", POINTS)
async def test_a_receiver_that_dies_between_two_steps_loses_no_piece_and_doubles_none(
    pipe: Pipeline, fake: FakeTelegram, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """At each time that an album reaches the point: with the photo before the addressed one, with that, and after it."""
    reached: list[str] = []
    fatal = 0

    def raise_at(here: str) -> None:
        reached.append(here)
        if reached.count(point) == fatal and here == point:
            raise Injected(point)

    monkeypatch.setattr(POINTS[point], raise_at)
    async with at(pipe, fake) as hook:
        for fatal in (1, 2, 3):
            reached.clear()
            answers = list[int]()
            for update in album(1, name=f"{fatal}"):
                while not answers or answers.pop() != 200:
                    answers.append((await hook.post(update)).status_code)
            assert point in reached
    assert await journaled(pipe) == ["photo-0", "look photo-1", "photo-2"] * 3


async def test_without_redis_a_process_keeps_pieces_itself_and_every_addressed_piece_is_accepted(
    make_settings: MakeSettings, fake: FakeTelegram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ValkeyOutage(tmp_path / "valkey")
    settings = make_settings(telegram=here(fake), redis_url=SecretStr(server.url))
    monkeypatch.setattr(hold, "AWAY_SECONDS", 0.0)
    async with open_pipeline(settings) as pipe, open_pipeline(settings) as other:
        server.stop()
        async with at(pipe, fake) as hook, at(other, fake) as elsewhere:
            await hook.bring(*album(1))
            await elsewhere.bring(photo(0, "alone"))
            await hook.bring(unaddressed(LONG))
            server.start()
            await hook.bring(said("two", SUPERGROUP))
        assert await journaled(pipe) == ["photo-0", "look photo-1", "photo-2", "alone photo-0", LONG, "two"]
    server.stop()


async def test_garbage_under_a_name_of_pieces_keeps_no_addressed_piece_out(pipe: Pipeline, fake: FakeTelegram) -> None:
    client = pipe.servers.all[0].client
    async with at(pipe, fake) as hook:
        first, second, third = album(1)
        await hook.bring(first)
        [name] = await kept(pipe)
        for garbage in (b"{", b"[[1]]", b'[["in_1",0,true,true,"{}"]]', b"[7]"):
            await client.set(name, garbage)
            await hook.bring(second)
        await client.delete(name)
        await client.rpush(name, "a list")
        await hook.bring(second, third)
    assert await journaled(pipe) == ["look photo-1", "photo-2"]
