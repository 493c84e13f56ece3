"""The generic webhook's contract: Standard Webhooks in both directions, and other schemes by which programs prove themselves."""

from __future__ import annotations

import hmac
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import orjson
from pydantic import SecretStr

from producers import message_body
from shared import signing
from shared.messages import Inbound, Media, Source
from shared.platforms.webhook import NAME, WebhookSettings
from tests.conftest import WEBHOOK_SECRET
from tests.contract.api import PROGRAM, a_message
from tests.contract.case import SEND_SECONDS, Answer, NotHere, Outgoing, Post, Shown, Webhook
from tests.contract.fake_api import FakeApi, Request, open_api

OTHER_SECRET = "whsec_bmV3IHNlY3JldCwgbmV3IHNlY3JldCwgbmV3IHM="


def block(*secrets: str, **values: Any) -> dict[str, Any]:
    return {NAME: WebhookSettings(secrets=tuple(SecretStr(secret) for secret in secrets), **values)}


class WebhookCase(Webhook):
    platform = NAME
    secrets = (WEBHOOK_SECRET, OTHER_SECRET)
    proofs: Sequence[str] = ("webhook-id", "webhook-timestamp", "webhook-signature")
    oldest_seconds: int | NotHere = signing.TOLERANCE_SECONDS
    own = PROGRAM
    others = PROGRAM
    shapeless = ({}, {"chat": 1}, {"chat": {"id": "c1"}, "user": {"id": "u1"}})

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[WebhookCase]:
        yield cls()

    def blocks(self, *secrets: str) -> dict[str, Any]:
        return block(*secrets)

    def said(self, text: str, *, id: int, chat: int = 1) -> Any:
        return a_message(text, id, chat)

    def said_by_stranger(self, text: str, *, id: int) -> NotHere:
        return NotHere("the signature is the permission, for any user")

    def post(self, body: bytes, secret: str, *, ahead: int = 0) -> Post:
        id, at = f"msg_{sha256(body).hexdigest()[:16]}", int(time.time()) + ahead
        signature = signing.sign(signing.decode_secret(SecretStr(secret)), id, at, body)
        headers = (("webhook-id", id), ("webhook-timestamp", str(at)), ("webhook-signature", signature))
        return Post(f"/webhooks/{NAME}", body, headers)


class StripeCase(WebhookCase):
    """A signed time and the signature in one header. What is signed is not the message's id, but the body has one."""

    way = "webhook, stripe"
    secrets = ("a secret of some length", "another of that length")
    proofs = ("stripe-signature",)

    def blocks(self, *secrets: str) -> dict[str, Any]:
        return block(*secrets, scheme="stripe") if secrets else block()  # without any, the scheme is refused at start

    def post(self, body: bytes, secret: str, *, ahead: int = 0) -> Post:
        at = str(int(time.time()) + ahead)
        signature = hmac.digest(secret.encode(), f"{at}.".encode() + body, "sha256").hex()
        return Post(f"/webhooks/{NAME}", body, (("stripe-signature", f"t={at},v0=old,v1={signature}"),))


class TokenCase(WebhookCase):
    """The secret itself in a header."""

    way = "webhook, token"
    secrets = ("a secret of some length", "another of that length")
    proofs = ("x-shop-token",)
    oldest_seconds = NotHere("a token signs nothing")

    def blocks(self, *secrets: str) -> dict[str, Any]:
        return block(*secrets, scheme="token", signature_header="X-Shop-Token") if secrets else block()

    def post(self, body: bytes, secret: str, *, ahead: int = 0) -> Post:
        return Post(f"/webhooks/{NAME}", body, (("x-shop-token", secret),))


class CallbackCase(Outgoing):
    platform = NAME
    secrets = (WEBHOOK_SECRET,)
    source = Source(NAME, "c1", user="u1")
    threaded = Source(NAME, "c1", user="u1", thread="t1")
    pointing = NotHere("in_reply_to names the events that are answered, in every chat")
    media = Media("https://files.example/a.png", "image/png", "a.png")
    receipts = NotHere("of a callback's answer only the status counts")
    refused = Answer(410)
    denied = NotHere("a callback that answers 401 or 403 refuses the reply, as any other 4xx")
    markup_refused = NotHere("Markdown goes out as it is")

    def __init__(self, api: FakeApi) -> None:
        self._api = api
        self._taken: dict[str, Shown] = {}
        self.api_url = api.url

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[CallbackCase]:
        async with open_api() as api:
            case = cls(api)
            api.answer = case._take
            yield case

    def blocks(self, api_url: str, seconds: float = SEND_SECONDS) -> dict[str, Any]:
        return block(WEBHOOK_SECRET, callback_url=f"{api_url}/callback", callback_timeout_seconds=seconds)

    def is_send(self, method: str, path: str) -> bool:
        return True

    def busy(self, seconds: int) -> Answer:
        return Answer(429, headers=(("retry-after", str(seconds)),))

    def shown(self) -> list[Shown]:
        return list(self._taken.values())

    def _take(self, request: Request) -> Answer:
        """A receiver that dedupes by webhook-id, as it is told to."""
        id, at = request.headers["webhook-id"], request.headers["webhook-timestamp"]
        key = signing.decode_secret(SecretStr(WEBHOOK_SECRET))
        assert request.headers["webhook-signature"] == signing.sign(key, id, int(at), request.body)
        fields = orjson.loads(request.body)
        media = fields["media"][0]["url"] if fields["media"] else None
        self._taken.setdefault(id, Shown(fields["text"], "", fields["thread"], None, media))
        return Answer(200)


def heard(payload: dict[str, Any]) -> Inbound:
    return message_body.normalise(payload, NAME, message_body.event_id_of(payload) or "msg_1", received_at=1_000)


RECEIVING = (WebhookCase, StripeCase, TokenCase)
SENDING = CallbackCase
