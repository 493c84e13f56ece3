"""Step 2 for /v1/messages: a posted body becomes an Inbound. Pure; no I/O."""

from __future__ import annotations

from producers import message_body
from producers.heard import Event
from shared.messages import Inbound
from shared.platforms.api import NAME


def normalise(event: Event, received_at: int) -> Inbound:
    """The Inbound of a post, under the id that the body has or was given."""
    return message_body.normalise(event.fields, NAME, event.ref, received_at)
