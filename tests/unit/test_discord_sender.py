"""What Discord is asked for a part, and what follows when it refuses that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from shared.blobs.directory import DirectoryBlobs
from shared.choices import Choice
from shared.errors import Ambiguous, Transient, Undeliverable
from shared.messages import Media, Source
from shared.multipart import Upload
from shared.platforms import discord_api
from shared.platforms.discord import FACTS, InteractionAnswer
from shared.platforms.discord_api import DiscordApi
from tests.support.scripted_api import Scripted, a_part
from tests.support.uploads import a_png, no_files
from workers.delivery.discord import DiscordSender
from workers.delivery.failure_notice import TEXT, tell_of_failure
from workers.media.incoming import FetchLimits
from workers.media.outgoing import Uploads

TALK = "POST /channels/1/messages"


def discord(*answers: Any) -> tuple[DiscordSender, Scripted]:
    api = Scripted(*answers)
    return DiscordSender(cast(DiscordApi, api), no_files(FACTS)), api


def no(code: int) -> discord_api.DiscordRefused:
    return discord_api.DiscordRefused(400, code, "no")


async def test_discord_says_a_part_once_and_calls_nobody() -> None:
    sender, api = discord({"id": "9"}, {"id": "9"})
    for _ in range(2):
        assert (await sender.send(a_part("discord"))).message_id == "9"
    (_, first), (_, second) = api.asked
    assert api.routes == [TALK, TALK] and first == second
    assert first["nonce"] and len(first["nonce"]) <= 25 and first["enforce_nonce"] is True
    assert first["allowed_mentions"] == {"parse": [], "replied_user": False} and first["flags"] == 4
    assert "message_reference" not in first


@pytest.mark.parametrize(
    ("about", "points"),
    [
        ({"chat_type": "channel", "answers": "5"}, True),
        ({"chat_type": "channel", "answers": None}, False),
        ({"chat_type": "dm", "answers": "5"}, False),
    ],
)
async def test_discord_points_at_what_it_answers_where_others_speak(about: Any, points: bool) -> None:
    sender, api = discord({"id": "9"})
    await sender.send(a_part("discord", **about))
    expected = {"message_id": "5", "fail_if_not_exists": False} if points else None
    assert api.asked[0][1].get("message_reference") == expected


@pytest.mark.parametrize("code", [50035, 160002])
async def test_discord_is_told_without_pointing_where_it_cannot_point(code: int) -> None:
    sender, api = discord(no(code), {"id": "9"})
    assert (await sender.send(a_part("discord", chat_type="channel", answers="5"))).message_id == "9"
    assert "message_reference" in api.asked[0][1] and "message_reference" not in api.asked[1][1]
    sender, api = discord(no(code))
    with pytest.raises(Undeliverable):
        await sender.send(a_part("discord"))
    assert len(api.asked) == 1


async def test_another_refusal_of_discords_is_final() -> None:
    sender, api = discord(no(10003))
    with pytest.raises(Undeliverable):
        await sender.send(a_part("discord", chat_type="channel", answers="5"))
    assert len(api.asked) == 1


@pytest.mark.parametrize(
    ("lost", "route"), [(1, "PATCH /webhooks/77/tok/messages/@original"), (2, "POST /channels/1/messages")]
)
async def test_a_notice_of_a_part_that_was_lost_replaces_no_part_that_arrived(lost: int, route: str) -> None:
    sender, api = discord({"id": "9"})
    part = a_part("discord", "1", "channel", answers="interaction:77:tok")
    await tell_of_failure(sender, replace(part, part=lost, parts=2))
    assert api.routes == [route] and api.asked[0][1]["content"] == TEXT


async def test_an_archived_thread_of_discord_is_woken_once() -> None:
    sender, api = discord(no(50083), {}, {"id": "9"})
    assert (await sender.send(a_part("discord", chat_type="channel", thread="3"))).message_id == "9"
    assert api.routes == ["POST /channels/3/messages", "PATCH /channels/3", "POST /channels/3/messages"]
    assert api.asked[1][1] == {"archived": False}


@pytest.mark.parametrize(("error", "expected"), [(Ambiguous("x"), Transient), (None, None), (no(10008), "anew")])
async def test_a_message_on_discord_is_changed_or_said_anew(error: Any, expected: Any) -> None:
    sender, api = discord(error or {"id": "5"}, {"id": "9"})
    part = a_part("discord", edits="5")
    if expected is Transient:
        with pytest.raises(Transient) as caught:
            await sender.edit(part)
        assert type(caught.value) is Transient
    else:
        assert (await sender.edit(part)).message_id == ("9" if expected == "anew" else "5")
    assert api.routes == ["PATCH /channels/1/messages/5", *([TALK] if expected == "anew" else [])]


@pytest.mark.parametrize("chat", ["1/../2", "@me", "٣", ""])
async def test_an_id_that_is_no_number_reaches_no_path_of_discord(chat: str) -> None:
    sender, api = discord()
    with pytest.raises(Undeliverable):
        await sender.send(a_part("discord", chat))
    assert api.asked == []


async def test_an_answer_of_discord_without_an_id_may_have_been_one() -> None:
    sender, _ = discord({"id": 9})
    with pytest.raises(Ambiguous):
        await sender.send(a_part("discord"))


async def test_a_file_is_shown_on_discord_from_its_address_and_no_path_is() -> None:
    sender, api = discord({"id": "9"})
    await sender.send(a_part("discord", text="", media=(Media("https://a/b.png"),)))
    assert api.asked[0][1]["content"] == "https://a/b.png" and "flags" not in api.asked[0][1]
    sender, api = discord()
    with pytest.raises(Undeliverable):
        await sender.send(a_part("discord", text="", media=(Media("/etc/passwd"),)))


CHOICES = (Choice("Approve", "/approve x"), Choice("Deny", "/deny x"))


@pytest.mark.parametrize(
    ("code", "choices", "sends"), [(50035, CHOICES, 2), (50035, (), 1), (10003, CHOICES, 1)], ids=str
)
async def test_a_question_whose_buttons_discord_refuses_is_asked_without_them_and_no_other_refusal_is_tried_again(
    code: int, choices: tuple[Choice, ...], sends: int
) -> None:
    sender, api = discord(no(code), {"id": "9"})
    if sends == 2:
        assert (await sender.send(a_part("discord", choices=choices))).message_id == "9"
        assert "components" in api.asked[0][1] and "components" not in api.asked[1][1]
    else:
        with pytest.raises(Undeliverable):
            await sender.send(a_part("discord", choices=choices))
    assert len(api.asked) == sends


HOOK = "/webhooks/77/tok-1"
ORIGINAL, NEXT = f"PATCH {HOOK}/messages/@original", f"POST {HOOK}?wait=true"


@pytest.mark.parametrize(
    ("part", "refusals", "routes"),
    [
        (1, [], [ORIGINAL]),  # what the platform shows while we work becomes the answer
        (2, [], [TALK]),
        (1, [10015], [ORIGINAL, TALK]),  # over after 15 minutes
        *((1, [10015, code], [ORIGINAL, TALK, NEXT]) for code in (10003, 50001, 50013)),  # the bot is not there
        (2, [50001], [TALK, NEXT]),
    ],
)
@pytest.mark.parametrize("with_file", [False, True], ids=["a text", "a file"])
async def test_an_interaction_is_answered_in_its_place_then_in_the_channel_and_where_the_bot_is_not_by_its_token(
    part: int, refusals: list[int], routes: list[str], with_file: bool, tmp_path: Path
) -> None:
    files: list[str | None] = []

    class Noting(Scripted):
        async def call(self, what: Any, fields: Any = None, *_: Any, file: Upload | None = None, **__: Any) -> Any:
            files.append(file.name if file is not None else None)
            return await super().call(what, fields)

    api, blobs = Noting(*map(no, refusals), {"id": "9"}), DirectoryBlobs(tmp_path)
    sender = DiscordSender(cast(DiscordApi, api), Uploads(blobs, FACTS))
    blob = await blobs.keep(_chunks(a_png()), 100_000)
    media = (Media(str(blob), "image/png", "a.png"),) if with_file else ()
    said = replace(
        a_part("discord", chat_type="channel", answers=str(InteractionAnswer("77", "tok-1")), media=media), part=part
    )
    assert (await sender.send(said)).message_id == "9"
    assert api.routes == routes and files == ["a.png" if with_file else None] * len(routes)
    assert all("message_reference" not in fields for _, fields in api.asked)


async def test_an_interaction_that_the_channel_refuses_for_another_reason_is_answered_nowhere_else() -> None:
    sender, api = discord(no(10015), no(50007))
    with pytest.raises(Undeliverable):
        await sender.send(a_part("discord", chat_type="channel", answers=str(InteractionAnswer("77", "tok-1"))))
    assert api.routes == [ORIGINAL, TALK]


async def _chunks(content: bytes) -> AsyncIterator[bytes]:
    yield content


CDN = "https://cdn.discordapp.com/attachments/1/7/a.png"
OLD, NEW = f"{CDN}?ex=66&is=65&hm=ab", f"{CDN}?ex=ffffffff&is=65&hm=cd"


class Giving:
    """A Discord whose message has these files now; None: it is gone."""

    def __init__(self, *urls: str, is_gone: bool = False) -> None:
        self._files = [{"id": "7", "url": url} for url in urls]
        self._is_gone = is_gone
        self.asked: list[str] = []
        self.fetched: list[str] = []

    async def ask(self, path: str) -> dict[str, Any]:
        self.asked.append(path)
        if self._is_gone:
            raise discord_api.DiscordRefused(404, 10008, "Unknown Message")
        return {"attachments": self._files}

    def download(self, address: str, seconds: float) -> None:
        self.fetched.append(address)
        raise Transient("far enough")


@pytest.mark.parametrize(
    ("kept", "api", "asked", "fetched"),
    [
        (f"{OLD}#12/34", Giving("https://cdn.discordapp.com/attachments/1/8/b.png", NEW), True, NEW),
        (f"{OLD}#12/34", Giving(is_gone=True), True, OLD),
        (f"{OLD}#12/34", Giving(), True, OLD),
        (f"{NEW}#12/34", Giving(NEW), False, NEW),
        (f"{OLD}#12/../34", Giving(NEW), False, OLD),
        (OLD, Giving(NEW), False, OLD),  # of a command, which has no message, or kept by an earlier version
    ],
    ids=["expired", "gone", "taken out", "good", "no place", "nowhere"],
)
async def test_a_file_whose_address_has_expired_is_fetched_from_the_one_that_its_message_has_now(
    kept: str, api: Giving, asked: bool, fetched: str
) -> None:
    sender = DiscordSender(cast(DiscordApi, api), no_files(FACTS))
    with pytest.raises(Transient):
        async with sender.file(Media(kept), Source("discord", "12"), FetchLimits(100, 1.0)):
            pass
    assert (api.asked, api.fetched) == (["/channels/12/messages/34"] if asked else [], [fetched])
