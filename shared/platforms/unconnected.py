"""Platforms that Keyturn does not connect to. Their conversations come by `keyturn import`, so prompts and logs speak of
them already. A platform that is connected leaves this file for one of its own."""

from __future__ import annotations

from shared.platforms.facts import Facts

_NO_API = (
    "You have no access to the {} API: you cannot search it, read its channels or manage it. Say so when asked to."
)

UNCONNECTED = (
    Facts("discord", "Discord", prompt_note=_NO_API.format("Discord")),
    Facts("signal", "Signal", hides_ids=True),
    Facts("slack", "Slack", prompt_note=_NO_API.format("Slack") + " You see the current message's own content only."),
    Facts("whatsapp", "WhatsApp", hides_ids=True),
)
