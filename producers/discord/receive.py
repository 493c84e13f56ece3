"""Step 1 for Discord's interactions by webhook: an Ed25519 signature over time and body, then the interaction.

Discord does not send an interaction again: while the journal is away its caller sees that the command failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from producers.access import Verdict
from producers.discord.interactions import (
    NOT_ALLOWED,
    NOT_UNDERSTOOD,
    NOTHING_SAID,
    THINKING,
    notice,
    taken,
    without_command,
)
from producers.discord.normalise import INTERACTION, normalise
from producers.heard import Event, Heard, parse_json
from producers.receiving import Receiver, Reception, only_header, require_fresh
from producers.server.http import json_answer
from producers.server.route import PlatformRoute
from producers.settling import Left, Recorded, Settled
from shared.door import Acceptance
from shared.errors import Denied
from shared.pipeline import Pipeline
from shared.platforms.discord import NAME, DiscordSettings
from shared.value import value

TOLERANCE_SECONDS = 300
_SIGNATURE = re.compile(r"[0-9a-f]{128}", re.ASCII)
_TAKEN = json_answer(THINKING)  # the same for every request


def routes(pipe: Pipeline) -> Iterator[PlatformRoute]:
    """One, where the application's public key is set. Discord describes it, not we."""
    settings = pipe.settings.block(DiscordSettings)
    if settings.on and settings.public_key is not None:
        yield PlatformRoute(f"/webhooks/{NAME}", Reception(pipe, DiscordReceiver(settings.public_key)).receive)


@value
class DiscordSigned:
    """What a request's headers say of its body."""

    timestamp: str
    signature: bytes


class DiscordReceiver(Receiver[DiscordSigned]):
    """The interactions of one application."""

    name = NAME
    body_is_signed = True

    def __init__(self, public_key: str) -> None:
        self._key = VerifyKey(bytes.fromhex(public_key))  # 83 µs for a signature, where OpenSSL takes 148

    def check_head(self, request: Request) -> DiscordSigned:
        signature, timestamp = (
            only_header(request, "x-signature-ed25519"),
            only_header(request, "x-signature-timestamp"),
        )
        if not _SIGNATURE.fullmatch(signature):
            raise Denied("signature")
        require_fresh(timestamp, TOLERANCE_SECONDS)
        return DiscordSigned(timestamp, bytes.fromhex(signature))

    def check_body(self, head: DiscordSigned, body: bytes) -> None:
        try:
            self._key.verify(head.timestamp.encode() + body, head.signature)
        except BadSignatureError:
            raise Denied("signature") from None

    async def parse(self, head: DiscordSigned, body: bytes) -> Sequence[Event] | Response:
        interaction = parse_json(body)
        if (response := without_command(interaction)) is not None:
            return JSONResponse(response)
        fields = {"t": INTERACTION, "d": interaction}
        return (Event(str(interaction.get("id")), fields, str(interaction.get("channel_id"))),)

    def normalise(self, event: Event, received_at: int) -> Heard:
        return normalise(event.fields, received_at)

    def answer_to(self, events: Sequence[Event], settled: Sequence[Settled]) -> Response:
        """A pressed button shows that it was heard, and nothing else changes."""
        response = taken(events[0].fields["d"])
        if isinstance(settled[0], Acceptance) and response is not THINKING:
            return JSONResponse(response)
        return self.answer(settled)

    def answer(self, settled: Sequence[Settled]) -> Response:
        """The caller sees that an answer is being made, or why there will be none."""
        match settled[0]:
            case Acceptance():
                return _TAKEN
            case Recorded():
                return JSONResponse(notice(NOT_UNDERSTOOD))
            case Left(reason):
                return JSONResponse(notice(NOT_ALLOWED if reason == Verdict.STRANGER.value else NOTHING_SAID))
