"""How workers run turns and send replies: how many at once, how long each may take, what happens when one fails."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field, model_validator

from shared.settings.section import Section

RENEWALS_THAT_MAY_FAIL = 2  # before the lease does


class WorkSettings(Section):
    """How many run at once, how long each may take, and what happens when one fails."""

    TITLE = "Turns and deliveries"

    concurrency: int = Field(default=200, ge=1)
    """Turns that one worker process runs at once, and never more. A turn that waits for its model counts. At 256, 512, 1024
    and so on a process pauses for a fifth of a second, so that others get their part."""
    turn_timeout_seconds: float = Field(default=300, gt=0)
    """A turn that takes longer is stopped and counts as failed."""
    turns_per_lease: int = Field(default=16, ge=1)
    """A conversation with more waiting messages lets others go first after this many turns."""
    mailbox_limit: int = Field(default=1000, ge=1)
    """A conversation that has this many waiting messages gets no more: senders are answered 429, chats are told."""
    lease_seconds: float = Field(default=10, gt=0)
    """When a worker dies, its conversations go on elsewhere after this time. A shorter one costs more calls to Redis."""
    heartbeat_seconds: float | None = Field(default=None, gt=0)
    """How often a worker tells Redis that it still holds its conversations. Unset: three tenths of LEASE_SECONDS."""
    grace_seconds: float = Field(default=25, ge=0)
    """After SIGTERM, running turns may go on for this long. The rest runs again elsewhere."""
    max_attempts: int = Field(default=3, ge=1)
    """A message whose turn failed this often becomes a dead letter, and its chat is told."""
    backoff_seconds: float = Field(default=1, gt=0)
    """The wait before a failed turn is tried again. It doubles with each failure."""
    backoff_max_seconds: float = Field(default=60, gt=0)
    """The longest wait before a failed turn is tried again."""
    provider_outage_seconds: float = Field(default=900, ge=0)
    """A message waits this long for a model's provider that refuses everybody (429, 5xx, no connection), with growing waits
    and without spending an attempt. Then it becomes a dead letter; at once, if the provider asks for a longer wait."""
    delivery_concurrency: int = Field(default=200, ge=1)
    """Chats that one worker process sends replies to at once. Raise it when platforms answer slowly and replies wait."""
    delivery_max_attempts: int = Field(default=12, ge=1)
    """A reply that could not be sent this often becomes a dead letter."""
    show_while_written: bool = True
    """Answers appear in the chat while the agent writes them, where the platform lets a message be changed or has a preview
    of its own. False: they appear when they are finished."""
    resend_ambiguous: bool = True
    """A send may have arrived although no answer came. True: it is sent again, so a chat may see it twice. False: it is left,
    so a chat may never see it. Platforms that recognise a repetition are always sent it again."""

    @model_validator(mode="after")
    def _renewals_fit_into_a_lease(self) -> WorkSettings:
        if self.heartbeat > self.lease / (RENEWALS_THAT_MAY_FAIL + 1):
            raise ValueError("HEARTBEAT_SECONDS must be at most a third of LEASE_SECONDS: two renewals may fail")
        return self

    @model_validator(mode="after")
    def _first_wait_is_the_shortest(self) -> WorkSettings:
        if self.backoff_seconds > self.backoff_max_seconds:
            raise ValueError("BACKOFF_SECONDS must not exceed BACKOFF_MAX_SECONDS")
        return self

    @property
    def lease(self) -> timedelta:
        """How long a lease lasts without a renewal."""
        return timedelta(seconds=self.lease_seconds)

    @property
    def heartbeat(self) -> timedelta:
        """How often leases are renewed."""
        return timedelta(seconds=self.heartbeat_seconds) if self.heartbeat_seconds is not None else self.lease * 0.3
