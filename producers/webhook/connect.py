"""How the generic webhook is set up: a secret, a scheme, and where replies go."""

from __future__ import annotations

import base64
import os
import re
import time
from collections.abc import Sequence

import orjson

from producers.connecting import Connect, Question
from shared import signing
from shared.errors import Transient, Undeliverable
from shared.finding import Finding, warn
from shared.http_client import open_http_client
from shared.ids import fresh_id
from shared.platforms.webhook import NAME, WebhookSettings

_URL = re.compile(r"https?://[^\s/?#]+[^\s]*")


def _fresh_secret() -> str:
    return f"whsec_{base64.b64encode(os.urandom(24)).decode()}"


class WebhookConnect(Connect[WebhookSettings]):
    """There is no platform to ask: secrets are checked by their form, the callback address by a signed test message."""

    steps = ("Decide how your program proves its requests: docs/webhook.md shows the schemes.",)
    questions = (
        Question(
            "scheme",
            "How your program signs",
            needed=False,
            choices={
                "standard": "Standard Webhooks, if left empty",
                "github": "X-Hub-Signature-256",
                "stripe": "t=…,v1=…",
                "token": "a token in a header",
            },
        ),
        Question(
            "secrets",
            "The secret that your program signs with",
            "leave it empty: a random one is made and written to .env, where you find it",
            secret=True,
            make=_fresh_secret,
        ),
        Question(
            "callback_url",
            "Where replies are posted",
            "such as https://example.org/replies; leave it empty to read them over HTTP instead",
            secret=True,
            needed=False,
            form=_URL,
            looks="an http(s) address",
        ),
    )
    address_is_for = "your program posts messages there"

    async def check(self, block: WebhookSettings) -> Sequence[Finding]:
        block.signing_keys()
        return ()

    async def set_webhook(self, block: WebhookSettings, url: str | None) -> Sequence[Finding]:
        where = url or f"https://<your address>/webhooks/{NAME}"
        fix = f"let it post to {where}, with the secret in .env (KEYTURN_WEBHOOK__SECRETS)"
        return (warn(NAME, "your program has to know where to post messages", fix),)

    def greeted(self, block: WebhookSettings, people: Sequence[str]) -> str | None:
        return "keyturn-test" if block.callback_url else None

    async def greet(self, block: WebhookSettings, to: str, text: str) -> None:
        """Post it to the callback address, signed as every reply is."""
        if not block.callback_url:
            raise Undeliverable("there is no callback address")
        id, now = f"test_{fresh_id()}", int(time.time())
        chat = {"id": to, "type": "dm"}
        body = orjson.dumps(
            {"id": id, "in_reply_to": [], "session_key": "", "chat": chat, "thread": None, "part": 1, "parts": 1}
            | {"text": text, "media": []}
        )
        headers = {
            "content-type": "application/json",
            "webhook-id": id,
            "webhook-timestamp": str(now),
            "webhook-signature": signing.sign(block.signing_keys()[0], id, now, body),
            "idempotency-key": id,
        }
        async with open_http_client(connections=1, seconds=block.callback_timeout_seconds) as client:
            answer = await client.post_unread(block.callback_url, body, headers)
        if not 200 <= answer.status < 300:
            raise Transient(f"the callback address answers HTTP {answer.status}")


CONNECT = WebhookConnect()
