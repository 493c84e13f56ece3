"""Signal's contract: the daemon's stream of events, and its JSON-RPC."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from producers.heard import Heard
from producers.signal.mentions import SignalAccount
from producers.signal.normalise import normalise
from shared.messages import Source
from shared.platforms.signal import NAME, SignalSettings
from tests.contract.case import SEND_SECONDS, Answer, Held, NotHere, Outgoing, Shown
from tests.support.signal import ACCOUNT, ANN, ANN_UUID, GROUP, OWN_UUID, FakeSignal, Refused, an_event, open_signal

BOB_UUID = "2f3a4b5c-0000-4000-8000-000000000003"
SAID_AT = 1_767_225_600_000


def block(url: str, **changes: Any) -> dict[str, Any]:
    values = {"http_url": url, "account": ACCOUNT, "uuid": OWN_UUID, "allowed_users": (ANN_UUID, BOB_UUID)}
    return {NAME: SignalSettings(**{**values, **changes})}


def heard(payload: dict[str, Any]) -> Heard:
    return normalise(payload, SignalAccount(ACCOUNT, OWN_UUID), received_at=1_000)


def _without_data(**more: Any) -> Any:
    event = an_event(None, SAID_AT)
    del event["envelope"]["dataMessage"]
    event["envelope"] |= more
    return event


class EventsCase(Held):
    """Of a daemon that remembers nothing: what it handed over is gone."""

    platform = NAME
    own = an_event("hello", SAID_AT, (ACCOUNT, OWN_UUID))
    shapeless = ({"envelope": 5}, {"envelope": {"sourceUuid": "Ann"}}, an_event(5, SAID_AT + 5))  # type: ignore[arg-type]

    def __init__(self, fake: FakeSignal) -> None:
        self.fake = fake
        self.others = {
            "a receipt": _without_data(receiptMessage={"when": SAID_AT, "isDelivery": True, "timestamps": [SAID_AT]}),
            "a typing sign": _without_data(typingMessage={"action": "STARTED", "timestamp": SAID_AT}),
            "an edit": _without_data(editMessage={"targetSentTimestamp": SAID_AT, "dataMessage": {"message": "x"}}),
            "what the owner sent elsewhere": _without_data(syncMessage={"sentMessage": {"message": "x"}}),
            "a reaction": an_event(None, SAID_AT, reaction={"emoji": "x", "targetSentTimestamp": SAID_AT}),
        }

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[EventsCase]:
        async with open_signal(remembers=False) as fake:
            yield cls(fake)

    def blocks(self) -> dict[str, Any]:
        return block(self.fake.url)

    def said(self, text: str, *, id: int, chat: int = 1) -> Any:
        person = (ANN, ANN_UUID) if chat == 1 else (None, BOB_UUID)
        return an_event(text, SAID_AT + id, person)

    def said_by_stranger(self, text: str, *, id: int) -> Any:
        return an_event(text, SAID_AT + id, ("+15556667777", "2f3a4b5c-0000-4000-8000-000000000666"))

    async def bring(self, *payloads: Any) -> None:
        await self.fake.bring(*payloads)

    async def bring_raw(self, body: bytes) -> None:
        await self.fake.bring_raw(body)

    def unconfirmed(self) -> NotHere:
        return NotHere("what the daemon handed over is gone")


class RpcCase(Outgoing):
    platform = NAME
    secrets = ()
    source = Source(NAME, ANN_UUID, user=ANN, user_alt=ANN_UUID)
    threaded = NotHere("Signal has no threads")
    pointing = (Source(NAME, f"group:{GROUP}", "group", user=ANN, user_alt=ANN_UUID), f"{SAID_AT}:{ANN_UUID}")
    media = NotHere("the daemon takes bytes, not addresses")
    markup_refused = NotHere("styles are ranges beside the text")

    def __init__(self, fake: FakeSignal) -> None:
        self.fake = fake
        self.api_url = fake.url
        self.refused = Answer(200, Refused(-1, "Unregistered user").body)
        self.denied = Answer(403)

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[RpcCase]:
        async with open_signal() as fake:
            yield cls(fake)

    def blocks(self, api_url: str, seconds: float = SEND_SECONDS) -> dict[str, Any]:
        return block(api_url, send_timeout_seconds=seconds)

    def is_send(self, method: str, path: str) -> bool:
        return path == "/api/v1/rpc"

    def busy(self, seconds: int) -> Answer:
        return Answer(200, Refused(-5, "wait", {"type": "RATE_LIMIT_FAILURE", "retryAfterSeconds": seconds}).body)

    def shown(self) -> list[Shown]:
        sent = sorted((one for found in self.fake.shown.values() for one in found), key=lambda one: one["timestamp"])
        return [Shown(one["message"], str(one["timestamp"]), answers=_quoted(one)) for one in sent]

    def vanish(self, shown: Shown) -> None:
        for messages in self.fake.shown.values():
            messages[:] = [message for message in messages if str(message["timestamp"]) != shown.id]


def _quoted(message: dict[str, Any]) -> str | None:
    return f"{message['quoteTimestamp']}:{message['quoteAuthor']}" if "quoteTimestamp" in message else None


RECEIVING = (EventsCase,)
SENDING = RpcCase
