"""Step 2 for the generic webhook: the body that was signed becomes an Inbound. Pure; no I/O."""

from __future__ import annotations

from producers import message_body
from producers.heard import Event
from shared.messages import Inbound
from shared.platforms.webhook import NAME


def normalise(event: Event, received_at: int) -> Inbound:
    """The Inbound of a request. A body without an id of its own has that of its `webhook-id` header."""
    event_id = message_body.event_id_of(event.fields) or event.ref
    return message_body.normalise(event.fields, NAME, event_id, received_at)
