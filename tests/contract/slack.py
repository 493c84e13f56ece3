"""Slack's contract: told by the Events API, listened to by Socket Mode, answered through the Web API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
from pydantic import SecretStr

from producers.heard import Heard
from producers.slack.known import SlackBot, SlackKnown, SlackPlace
from producers.slack.normalise import normalise
from shared.messages import Media, Source
from shared.platforms.slack import NAME, SlackSettings
from tests.contract.case import (
    SEND_SECONDS,
    Answer,
    Handshake,
    Held,
    Incoming,
    NotHere,
    Outgoing,
    Post,
    Shown,
    Webhook,
)
from tests.support.slack import APP_TOKEN, BOT, BOT_ID, BOT_TOKEN, TEAM, FakeSlack, open_slack, signed, unescaped

SECRETS = ("canary7f3a9c1signing0secret00000", "canary7f3a9c2signing0secret00000")
PEOPLE = ("U01ANN", "U02BOB")
DIRECT = ("D01ANN", "D02BOB")


def block(fake: FakeSlack, *secrets: str, **changes: Any) -> dict[str, Any]:
    values = {"bot_token": SecretStr(BOT_TOKEN), "api_url": fake.url, "allowed_users": PEOPLE, **changes}
    return {NAME: SlackSettings(signing_secret=tuple(SecretStr(secret) for secret in secrets), **values)}


def callback(id: int, **event: Any) -> dict[str, Any]:
    """Ann writes to the bot, in their direct chat."""
    said = {
        "type": "message",
        "user": PEOPLE[0],
        "ts": f"1767225600.{id:07}",
        "channel": DIRECT[0],
        "channel_type": "im",
        "files": [],
        **event,
    }
    bot = {"team_id": TEAM, "user_id": BOT, "is_bot": True}
    return {"type": "event_callback", "team_id": TEAM, "event_id": f"Ev{id}", "event": said, "authorizations": [bot]}


class Events(Incoming):
    """What Slack tells, however it comes."""

    platform = NAME
    own = callback(901, user=BOT, bot_id=BOT_ID, text="hello")
    shapeless = ({"type": 5}, {"type": "event_callback", "event": []}, callback(913, text=5), {"command": "new"})

    def __init__(self, fake: FakeSlack) -> None:
        self.fake = fake
        self.others = {
            "an edit": callback(902, subtype="message_changed", hidden=True, message={"text": "hello"}),
            "a deletion": callback(903, subtype="message_deleted", hidden=True),
            "a member came": callback(904, subtype="channel_join", text="<@U02BOB> has joined"),
            "a reaction": callback(905, type="reaction_added", reaction="thumbsup"),
            "another bot": callback(906, bot_id="B09OTHER", text="hello"),
        }

    def said(self, text: str, *, id: int, chat: int = 1) -> Any:
        return callback(id, text=text, user=PEOPLE[chat - 1], channel=DIRECT[chat - 1])

    def said_by_stranger(self, text: str, *, id: int) -> Any:
        return callback(id, text=text, user="U66SPY")

    def pressed(self, data: str, *, id: int, by_stranger: bool = False) -> Any:
        channel = {"id": DIRECT[0], "name": "directmessage"}
        return press(id, data, "U66SPY" if by_stranger else PEOPLE[0], channel)


class SlackWebhook(Events, Webhook):
    secrets = SECRETS
    proofs = ("x-slack-signature", "x-slack-request-timestamp")
    oldest_seconds = 300

    def __init__(self, fake: FakeSlack) -> None:
        super().__init__(fake)
        asked = orjson.dumps({"type": "url_verification", "challenge": "3eZb"})
        self.handshakes = (Handshake(self.post(asked, SECRETS[0]), b"3eZb", self.post(asked, SECRETS[1])),)

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[SlackWebhook]:
        async with open_slack() as fake:
            yield cls(fake)

    def blocks(self, *secrets: str) -> dict[str, Any]:
        return block(self.fake, *secrets)

    def post(self, body: bytes, secret: str, *, ahead: int = 0) -> Post:
        headers = {"content-type": "application/json", **signed(body, secret, ahead=ahead)}
        return Post(f"/webhooks/{NAME}", body, tuple(headers.items()))


class SlackSocket(Events, Held):
    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[SlackSocket]:
        async with open_slack() as fake:
            yield cls(fake)

    def blocks(self) -> dict[str, Any]:
        return block(self.fake, app_token=SecretStr(APP_TOKEN))

    async def bring(self, *payloads: Any) -> None:
        await self.fake.bring(*payloads)

    async def bring_raw(self, body: bytes) -> None:
        await self.fake.bring_raw(body)

    def unconfirmed(self) -> NotHere:
        return NotHere("an envelope is acknowledged when it is in the spool")


class WebApiCase(Outgoing):
    platform = NAME
    secrets = (BOT_TOKEN, "canary7f3a9c")
    source = Source(NAME, DIRECT[0], user=PEOPLE[0], scope=TEAM)
    threaded = Source(NAME, "C01GEN", "channel", user=PEOPLE[0], scope=TEAM, thread="1767225604.000100")
    pointing = NotHere("an answer stands in a thread under what it answers")
    media = Media("https://files.example/a.png", "image/png", "a.png")

    def __init__(self, fake: FakeSlack) -> None:
        self.fake = fake
        self.api_url = fake.url
        self.refused = _refusal("channel_not_found")
        self.denied = _refusal("invalid_auth")
        self.markup_refused = _refusal("invalid_blocks")

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[WebApiCase]:
        async with open_slack() as fake:
            yield cls(fake)

    def blocks(self, api_url: str, seconds: float = SEND_SECONDS) -> dict[str, Any]:
        return block(self.fake, api_url=f"{api_url.removesuffix('/api')}/api", send_timeout_seconds=seconds)

    def is_send(self, method: str, path: str) -> bool:
        return path.endswith(("/chat.postMessage", "/chat.update"))

    def busy(self, seconds: int) -> Answer:
        return _refusal("ratelimited", 429, ("retry-after", str(seconds)))

    def shown(self) -> list[Shown]:
        sent = [(channel, message) for channel, messages in self.fake.shown.items() for message in messages]
        return [
            Shown(
                "" if _picture(message) else unescaped(message["text"]),
                f"{channel}:{message['ts']}",
                message.get("thread_ts"),
                None,
                _picture(message),
                buttons_of(message),
            )
            for channel, message in sorted(sent, key=lambda one: str(one[1]["ts"]))
        ]

    def vanish(self, shown: Shown) -> None:
        for channel, messages in self.fake.shown.items():
            messages[:] = [message for message in messages if f"{channel}:{message['ts']}" != shown.id]


def _picture(message: dict[str, Any]) -> str | None:
    found: str | None = message["blocks"][0].get("image_url") if message["blocks"] else None
    return found


def buttons_of(message: dict[str, Any]) -> list[tuple[str, str]]:
    """The words on the buttons of a message, and what each says."""
    elements = [element for block in message["blocks"] for element in block.get("elements", ())]
    return [(element["text"]["text"], element["value"]) for element in elements]


def press(id: int, data: str, user: str, channel: dict[str, Any], **message: Any) -> dict[str, Any]:
    """Somebody presses a button below a message of the bot's."""
    below = {"user": BOT, "bot_id": BOT_ID, "type": "message", "ts": "1767225599.000100", "text": "Well?", **message}
    action = {"type": "button", "action_id": "choice_0", "block_id": "b1", "value": data}
    return {
        "type": "block_actions",
        "user": {"id": user, "username": "someone", "name": "someone", "team_id": TEAM},
        "container": {"type": "message", "message_ts": below["ts"], "channel_id": channel["id"]},
        "trigger_id": f"1.2.press{id}",
        "team": {"id": TEAM, "domain": "team"},
        "channel": channel,
        "message": below,
        "actions": [{**action, "action_ts": f"1767225700.{id:06}"}],
    }


def _refusal(error: str, status: int = 200, *headers: tuple[str, str]) -> Answer:
    body = orjson.dumps({"ok": False, "error": error})
    return Answer(status, body, (("content-type", "application/json"), *headers))


def heard(payload: dict[str, Any]) -> Heard:
    general, many = SlackPlace("channel", "general", "about general"), SlackPlace("group")
    known = SlackKnown({"C01GEN": general, "C02MANY": many, "G01MANY": many}, {"U01ANN": "Ann"})
    return normalise(payload, SlackBot(BOT, BOT_ID, TEAM, "helper"), known, received_at=1_000)


RECEIVING = (SlackWebhook, SlackSocket)
SENDING = WebApiCase
