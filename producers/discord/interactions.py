"""The first response to an interaction, which Discord wants within three seconds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from producers.discord.commands import is_press, normalise_command, token_of
from producers.discord.snowflake import snowflake
from shared.clock import now_ms
from shared.errors import Malformed
from shared.messages import Inbound

_EPHEMERAL = 64  # a message flag: only the caller sees it
THINKING: dict[str, Any] = {"type": 5}  # "thinking…", until the answer takes its place
PRESSED: dict[str, Any] = {"type": 6}  # the message with the button stays as it is
NOT_ALLOWED = "You may not talk to this bot here."
NOTHING_SAID = "There is nothing to answer in this."
NOT_UNDERSTOOD = "This could not be understood."
_NOT_OFFERED = "This bot has no forms."
Admits = Callable[[Inbound], Awaitable[bool]]  # whether a message's sender may talk to us there


def notice(text: str) -> dict[str, Any]:
    """A message that only the caller sees."""
    return {"type": 4, "data": {"content": text, "flags": _EPHEMERAL, "allowed_mentions": {"parse": []}}}


def callback_path(interaction: dict[str, Any]) -> str:
    """Where the first response goes, if it does not answer a request. Malformed where the interaction does not say."""
    return f"/interactions/{snowflake(interaction, 'id')}/{token_of(interaction)}/callback"


def without_command(interaction: dict[str, Any]) -> dict[str, Any] | None:
    """The response to whatever is no command: it is acknowledged, and nothing follows. None for a command, and for a button of a
    question of ours."""
    match interaction.get("type"):
        case 1:
            return {"type": 1}
        case 3:
            return None if is_press(interaction) else PRESSED
        case 4:
            return {"type": 8, "data": {"choices": []}}
        case 5:
            return notice(_NOT_OFFERED)
    return None


async def first_response(interaction: dict[str, Any], admits: Admits) -> dict[str, Any]:
    """What the caller sees at once. Who may not talk is told so; for others an answer is being made. Raises what `admits`
    does."""
    if (response := without_command(interaction)) is not None:
        return response
    try:
        heard = normalise_command(interaction, now_ms())
    except Malformed:
        return notice(NOT_UNDERSTOOD)
    if not isinstance(heard, Inbound):
        return notice(NOTHING_SAID)
    return taken(interaction) if await admits(heard) else notice(NOT_ALLOWED)


def taken(interaction: dict[str, Any]) -> dict[str, Any]:
    """The response to what will be answered."""
    return PRESSED if is_press(interaction) else THINKING
