"""Step 1 for Slack by webhook: the signature over the raw bytes, then an event, a slash command or a pressed button.

Slack waits for three seconds, and repeats events three times. A repetition is told apart by its message, never by its
header: the attempt before it may have died before the journal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from producers.heard import Event, parse_json
from producers.introduction import Introduction
from producers.mac import Mac
from producers.receiving import Receiver, Reception, only_header
from producers.server.answer import WholeAnswer
from producers.server.body import header_values
from producers.server.route import PlatformRoute
from producers.settling import Settled
from producers.slack import signature
from producers.slack.hearing import Hearing
from shared.errors import Malformed
from shared.pipeline import Pipeline
from shared.platforms.slack import NAME, SlackSettings
from shared.platforms.slack_api import open_web_api
from shared.value import value

FORM = "application/x-www-form-urlencoded"
FIELD_LIMIT = 100
CHALLENGE_LIMIT = 1000
_TAKEN = WholeAnswer()  # the same for every request


def routes(pipe: Pipeline) -> Iterator[PlatformRoute]:
    """One for everything, if there is a signing secret. Slack describes it, not we."""
    settings = pipe.settings.block(SlackSettings)
    if settings.on and settings.signing_secret:
        yield PlatformRoute(f"/webhooks/{NAME}", Reception(pipe, SlackReceiver(settings)).receive)


@value
class SlackSigned:
    """What a request says was signed, and how its body is written."""

    timestamp: str
    signature: str
    is_form: bool


class SlackReceiver(Hearing, Receiver[SlackSigned]):
    """Any of the secrets verifies a request, so that the app's own can rotate."""

    body_is_signed = True

    def __init__(self, settings: SlackSettings) -> None:
        super().__init__(settings)
        self._settings = settings
        self._introduction = Introduction(self._ask)
        self._secrets = [Mac(secret.get_secret_value().encode()) for secret in settings.signing_secret]

    def check_head(self, request: Request) -> SlackSigned:
        timestamp = only_header(request, "x-slack-request-timestamp")
        signed = only_header(request, "x-slack-signature")
        signature.check_head(timestamp, signed)
        kinds = [kind.partition(";")[0].strip().lower() for kind in header_values(request, "content-type")]
        return SlackSigned(timestamp, signed, kinds[:1] == [FORM])

    def check_body(self, head: SlackSigned, body: bytes) -> None:
        signature.verify(self._secrets, head.timestamp, head.signature, body)

    async def parse(self, head: SlackSigned, body: bytes) -> Sequence[Event] | Response:
        payload = _form(body) if head.is_form else parse_json(body)
        if payload.get("type") == "url_verification":
            return _challenged(payload)
        await self._introduction.require()
        events = (self.event(payload, body),)
        if self.lacks_names(events):
            async with open_web_api(self._settings) as api:
                await self.learn_names(api, events)
        return events

    def answer(self, settled: Sequence[Settled]) -> Response:
        """200 with nothing in it: a body would be shown as the answer to a slash command."""
        return _TAKEN

    async def _ask(self) -> None:
        async with open_web_api(self._settings) as api:
            await self.introduce(api)


def _form(body: bytes) -> dict[str, Any]:
    """A slash command is a form; a pressed button is JSON in a form's only field."""
    try:
        fields = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FIELD_LIMIT))
    except ValueError:
        raise Malformed("the body is not a form") from None
    return parse_json(fields["payload"].encode(errors="surrogatepass")) if "payload" in fields else fields


def _challenged(payload: dict[str, Any]) -> Response:
    """The handshake of the app's settings page: we say what only a receiver of the request can know."""
    challenge = payload.get("challenge")
    if not isinstance(challenge, str) or not challenge.isascii() or len(challenge) > CHALLENGE_LIMIT:
        raise Malformed("challenge is not text")
    return PlainTextResponse(challenge)
