"""Files in and out on every platform that takes them: the real sender against a local fake."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import SecretStr

from shared.blobs.address import blob_at
from shared.errors import Undeliverable
from shared.messages import Inbound, Media, Part, Source
from shared.origin import require_own
from shared.pipeline import Pipeline, open_pipeline
from shared.platforms import PLATFORMS
from shared.platforms.discord import DiscordSettings
from shared.platforms.feishu import FeishuSettings
from shared.platforms.signal import SignalSettings
from shared.platforms.slack import SlackSettings
from shared.platforms.telegram import TelegramSettings
from shared.platforms.whatsapp import WhatsAppSettings
from shared.public_http import open_public_http
from shared.settings import Settings
from tests.support import discord, feishu, signal, slack, telegram, whatsapp
from tests.support.uploads import Uploaded, a_png
from workers.delivery import open_senders
from workers.delivery.sender import GivesFiles, Sender
from workers.media.fetch import MediaFetcher

MakeSettings = Callable[..., Settings]
PICTURE, TEXT = a_png(20_000), b"a,b\n1,2\n"


@dataclass
class Case:
    """A platform with a file that somebody sent, and what it shows of files that we sent."""

    blocks: dict[str, Any]
    source: Source
    sent: Media
    uploaded: Callable[[], list[Uploaded]]
    shown: Callable[[], list[str]]  # the text of what the chat shows


@asynccontextmanager
async def on_telegram() -> AsyncIterator[Case]:
    async with telegram.open_telegram() as fake:
        fake.files["AgAC"] = PICTURE
        block = TelegramSettings(token=SecretStr(telegram.TOKEN), api_url=fake.url)
        sent = Media("tg-file:AgAC", "image/jpeg")
        yield Case({"telegram": block}, Source("telegram", "11"), sent, lambda: fake.uploaded, lambda: fake.texts(11))


@asynccontextmanager
async def on_slack() -> AsyncIterator[Case]:
    async with slack.open_slack() as fake:
        fake.keep_file("F09PIC", "a.png", "image/png", PICTURE)
        block = SlackSettings(
            bot_token=SecretStr(slack.BOT_TOKEN), app_token=SecretStr(slack.APP_TOKEN), api_url=fake.url
        )
        sent = Media("slack-file:F09PIC", "image/png", "a.png")

        def uploaded() -> list[Uploaded]:
            """Those to which a message links."""
            said = " ".join(fake.texts("C01GEN"))
            return [file for id, file in fake.uploaded.items() if id in said]

        yield Case({"slack": block}, Source("slack", "C01GEN", "channel"), sent, uploaded, lambda: fake.texts("C01GEN"))


@asynccontextmanager
async def on_discord() -> AsyncIterator[Case]:
    async with discord.open_discord() as fake:
        fake.files["/attachments/1/2/a.png"] = PICTURE
        block = DiscordSettings(token=SecretStr(discord.TOKEN), api_url=fake.url)
        sent = Media(f"{fake.url}/attachments/1/2/a.png", "image/png", "a.png")
        yield Case({"discord": block}, Source("discord", "500"), sent, lambda: fake.uploaded, lambda: fake.texts("500"))


@asynccontextmanager
async def on_whatsapp() -> AsyncIterator[Case]:
    async with whatsapp.open_whatsapp() as fake:
        fake.files["77001"] = PICTURE
        block = WhatsAppSettings(
            access_token=SecretStr(whatsapp.TOKEN),
            app_secret=(SecretStr("canary-app-secret"),),
            verify_token=SecretStr("canary-verify"),
            phone_number_id=whatsapp.NUMBER,
            api_url=fake.url,
        )
        person, sent = "15552223333", Media("wa-media:77001", "image/jpeg")

        def uploaded() -> list[Uploaded]:
            contents = [message[message["type"]] for message in fake.shown.get(person, ())]
            return [fake.uploaded[content["id"]] for content in contents if "id" in content]

        yield Case({"whatsapp": block}, Source("whatsapp", person), sent, uploaded, lambda: fake.texts(person))


@asynccontextmanager
async def on_feishu() -> AsyncIterator[Case]:
    async with feishu.open_feishu() as fake:
        fake.files["img_v2"] = PICTURE
        block = FeishuSettings(app_id=feishu.APP_ID, app_secret=SecretStr(feishu.APP_SECRET), api_url=fake.url)
        sent = Media("feishu-file:om_1/image/img_v2", "image/jpeg")

        def uploaded() -> list[Uploaded]:
            return [fake.uploaded[message["href"]] for message in fake.shown if message["href"]]

        yield Case({"feishu": block}, Source("feishu", "oc_ann"), sent, uploaded, lambda: fake.texts("oc_ann"))


@asynccontextmanager
async def on_signal() -> AsyncIterator[Case]:
    async with signal.open_signal() as fake:
        fake.files["abc.png"] = PICTURE
        block = SignalSettings(http_url=fake.url, account=signal.ACCOUNT)

        def uploaded() -> list[Uploaded]:
            said = [message["attachments"] for message in fake.shown.get(signal.ANN, ()) if "attachments" in message]
            return [signal.attached(one) for [one] in said]

        def shown() -> list[str]:
            return [text for text in fake.texts(signal.ANN) if text]

        yield Case({"signal": block}, Source("signal", signal.ANN), Media("signal-file:abc.png"), uploaded, shown)


CASES: dict[str, Callable[[], AbstractAsyncContextManager[Case]]] = {
    "discord": on_discord,
    "feishu": on_feishu,
    "signal": on_signal,
    "slack": on_slack,
    "telegram": on_telegram,
    "whatsapp": on_whatsapp,
}


@dataclass
class Open:
    case: Case
    pipe: Pipeline
    sender: Sender

    async def fetched(self, *media: Media) -> Inbound:
        async with open_public_http() as public:
            senders = {self.case.source.platform: self.sender}
            fetcher = MediaFetcher(self.pipe.blobs, self.pipe.settings.media, senders, public)
            return await fetcher.fetched(Inbound("in_1", "e1", self.case.source, "look", media))

    async def send(self, content: bytes, name: str) -> None:
        async def once() -> AsyncIterator[bytes]:
            yield content

        media = Media(str(await self.pipe.blobs.keep(once(), 10**8)), None, name)
        source = self.case.source
        await self.sender.send(Part(1, "out_1", "agent:main:x:dm:1", source, ("e1",), 1, 1, "", (media,)))


@pytest.fixture(params=list(CASES))
async def opened(request: pytest.FixtureRequest, make_settings: MakeSettings) -> AsyncIterator[Open]:
    async with (
        CASES[request.param]() as case,
        open_pipeline(make_settings(**case.blocks)) as pipe,
        open_senders(pipe) as senders,
    ):
        yield Open(case, pipe, senders[request.param])


@pytest.fixture
def database_url(databases: Any, tmp_path: Any) -> str:
    found: str = databases.fresh_sqlite(tmp_path)
    return found


def test_every_platform_that_takes_files_has_a_case() -> None:
    assert set(CASES) == {name for name, facts in PLATFORMS.items() if facts.media is not None}


async def test_a_file_that_somebody_sent_is_fetched_whole(opened: Open) -> None:
    assert isinstance(opened.sender, GivesFiles)
    got = await opened.fetched(opened.case.sent)
    [media] = got.media
    blob = blob_at(media.url)
    assert blob is not None and (got.text, media.type) == ("look", "image/png")
    assert b"".join([chunk async for chunk in opened.pipe.blobs.read(blob)]) == PICTURE


async def test_a_file_that_is_not_there_any_more_is_a_note(opened: Open) -> None:
    address, slash, name = opened.case.sent.url.rpartition("/")
    scheme = "" if slash else f"{name.partition(':')[0]}:"
    got = await opened.fetched(Media(f"{address}{slash}{scheme}gone", "image/png", "gone.png"))
    assert got.media == () and got.text.startswith("look\n[image: gone.png: not read: ")


@pytest.mark.parametrize(
    ("content", "name", "type"), [(PICTURE, "chart.png", "image/png"), (TEXT, "t.csv", "text/plain")]
)
async def test_a_file_of_the_agent_is_shown_in_the_chat(opened: Open, content: bytes, name: str, type: str) -> None:
    await opened.send(content, name)
    [file] = opened.case.uploaded()
    assert (file.name, file.type, file.content) == (name, type, content)


async def test_a_file_that_is_gone_is_a_line_of_text(opened: Open) -> None:
    gone = Media(f"blob:{'0' * 64}/5", "text/plain", "gone.txt")
    part = Part(1, "out_1", "agent:main:x:dm:1", opened.case.source, ("e1",), 1, 1, "", (gone,))
    await opened.sender.send(part)
    assert opened.case.uploaded() == [] and "gone.txt: no longer kept" in " ".join(opened.case.shown())


@pytest.mark.parametrize(
    "address",
    [
        "http://files.slack.com/a",
        "https://slack.com.evil.example/a",
        "https://evil.example/slack.com",
        "https://user@evil.example/",
        "https://notslack.com/a",
        "http://127.0.0.1:2/api",
        "https://[bad",
    ],
)
def test_a_token_goes_to_the_platforms_own_addresses_only(address: str) -> None:
    with pytest.raises(Undeliverable):
        require_own(address, "http://127.0.0.1:1/api", "slack.com")
    assert require_own("https://files.slack.com/a", "http://127.0.0.1:1/api", "slack.com").host == "files.slack.com"
    assert require_own("http://127.0.0.1:1/files/F1", "http://127.0.0.1:1/api").port == 1
