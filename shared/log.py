"""JSON log lines. `message` is the correlation id of an inbound; its text is never logged above debug."""

from __future__ import annotations

import logging
import sys
from contextvars import ContextVar
from typing import Any

import orjson
import structlog

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
correlation: ContextVar[str | None] = ContextVar("correlation", default=None)


def setup(level: str, process: str) -> None:
    """Log to standard error from here on, as `process`. Other libraries' warnings come out in the same form."""

    def add_context(_: Any, __: str, event: Any) -> Any:
        event["process"] = process
        if (message := correlation.get()) is not None:
            event["message"] = message
        return event

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            add_context,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=lambda value, **_: orjson.dumps(value, default=str).decode()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = _Forward()
    logging.basicConfig(level=max(_LEVELS[level], logging.WARNING), handlers=[handler], force=True)


class _Forward(logging.Handler):
    """The standard library's records as lines of ours."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger(record.name).log(record.levelno, record.getMessage(), exc_info=record.exc_info or None)


def get() -> Any:
    return structlog.get_logger()
