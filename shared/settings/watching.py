"""How the deployment is watched: metrics of each process, and messages of our own that run the whole way."""

from __future__ import annotations

from pydantic import Field

from shared.settings.section import Block, Section


class MetricsBlock(Block):
    """Where Prometheus reads the processes that serve nothing else: workers, housekeepers and listeners."""

    port: int = Field(default=0, ge=0, le=65_535)
    """The port on which `work`, `housekeep` and `listen` serve /metrics and /healthz. 0: none. Receivers serve them on their
    own port. Processes of one machine need different ports; one whose port is taken says so and goes on without."""
    host: str = "127.0.0.1"
    """The address of that port. Anybody who reaches it can read the metrics."""


class SyntheticBlock(Block):
    """Messages of our own that run the whole way: journal, mailbox, worker, commit, outbox, delivery. No agent runs and no
    chat sees them. They show that the deployment answers while nobody writes."""

    seconds: float = Field(default=0, ge=0, le=3600)
    """How often a housekeeper sends one. 0: never. `keyturn_synthetic_seconds` says how long the last one took; the alert
    SyntheticLate comes where none arrives. Turn it on when every worker has the version that knows it."""


class WatchingSettings(Section):
    """How Prometheus reads each process, and messages of our own that show that everything works."""

    TITLE = "Watching"

    metrics: MetricsBlock = MetricsBlock()
    """Where Prometheus reads the processes that serve nothing else."""
    synthetic: SyntheticBlock = SyntheticBlock()
    """Messages of our own that run the whole way."""
