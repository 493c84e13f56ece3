"""How much may be asked of a model's provider, by all workers together."""

from __future__ import annotations

from pydantic import Field

from shared.settings.section import Block


class ProviderLimits(Block):
    """Limits for one model behind one key, shared by all workers through Redis. Where none is set, requests are not counted, and only
    a provider that says 429 or 529 is left alone for a while."""

    requests_per_minute: int | None = Field(default=None, ge=1)
    """How many requests may be sent in a minute. Messages beyond it wait, without spending an attempt. Unset: no limit."""
    tokens_per_minute: int | None = Field(default=None, ge=1)
    """The same for tokens: estimated before a request, and corrected by what the provider counted. Unset: no limit."""
    concurrency: int | None = Field(default=None, ge=1)
    """How many requests may be open at a time. Each 429 halves it for a while; every minute without one adds one again. Unset: no
    limit."""
    share_without_redis: float = Field(default=0.1, gt=0, le=1)
    """While Redis is away nobody counts for all: each worker then takes this share of each limit."""

    @property
    def are_set(self) -> bool:
        """Whether requests must be counted."""
        return bool(self.requests_per_minute or self.tokens_per_minute or self.concurrency)
