"""What a receiver takes from the internet."""

from __future__ import annotations

from pydantic import Field

from shared.setting_values import Names
from shared.settings.section import Section


class ReceiverSettings(Section):
    """What a receiver takes from the internet."""

    TITLE = "Receiving"

    max_body_bytes: int = Field(default=1_048_576, ge=1024)
    """A larger request is refused with 413."""
    body_timeout_seconds: float = Field(default=10, gt=0)
    """A request whose body takes longer is dropped."""
    trusted_proxies: Names = ("127.0.0.1", "::1")
    """Addresses whose X-Forwarded-For is believed. List your proxy: otherwise all who come through it share one address'
    limits. List nobody else: they could write any address."""
