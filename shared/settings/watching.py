"""How the deployment is watched: metrics of each process, messages of our own that run the whole way, and traces."""

from __future__ import annotations

from pydantic import Field

from shared.settings.section import Block, Section


class MetricsBlock(Block):
    """Where Prometheus reads the processes beside receivers: workers, housekeepers, listeners and dashboards."""

    port: int = Field(default=0, ge=0, le=65_535)
    """The port on which `work`, `housekeep`, `listen` and `dashboard` serve /metrics and /healthz. 0: none. Receivers serve them on
    their own port. Processes of one machine need different ports; one whose port is taken says so and goes on without."""
    host: str = "127.0.0.1"
    """The address of that port. Anybody who reaches it can read the metrics."""


class SyntheticBlock(Block):
    """Messages of our own that run the whole way: journal, mailbox, worker, commit, outbox, delivery. No agent runs and no
    chat sees them. They show that the deployment answers while nobody writes."""

    seconds: float = Field(default=0, ge=0, le=3600)
    """How often a housekeeper sends one. 0: never. `keyturn_synthetic_seconds` says how long the last one took; the alert
    SyntheticLate comes where none arrives. Turn it on when every worker has the version that knows it."""


class TraceBlock(Block):
    """Traces by OpenTelemetry: how long each step of a message took, model and tool calls included. Needs `keyturn[otel]`.
    Where they go, the standard variables say: OTEL_EXPORTER_OTLP_ENDPOINT and others. No text of a message is ever in them."""

    enabled: bool = False
    """Whether processes record traces. Every process needs it."""
    sample: float = Field(default=0.05, ge=0, le=1)
    """Which part of the messages is traced. Each one that is costs about 0.1 ms of CPU in all."""
    join: bool = False
    """False: a turn and a delivery are traces of their own, with a link to the message that caused them. True: one trace has
    the whole way of a message."""


class WatchingSettings(Section):
    """How Prometheus reads each process, messages of our own that show that everything works, and traces."""

    TITLE = "Watching"

    metrics: MetricsBlock = MetricsBlock()
    """Where Prometheus reads the processes beside receivers."""
    synthetic: SyntheticBlock = SyntheticBlock()
    """Messages of our own that run the whole way."""
    trace: TraceBlock = TraceBlock()
    """Traces by OpenTelemetry."""
