"""Log lines: JSON, or on a terminal words for a person. `message` is the correlation id of an inbound; its text is never
logged above debug.

A line is one line whatever strangers put into it, it moves no cursor, and the secrets of the settings are cut out of it:
the last defence, for the error text of a library that quotes what it was given.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import orjson
import structlog

from shared.log_file import LogFile

if TYPE_CHECKING:
    from shared.context.redact import Redaction
    from shared.settings import Settings

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_COLOURS = {"debug": "\x1b[2m", "warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31m"}
_PLAIN_WORD = re.compile(r"[^\s\"'=\\]+")
_HIDDEN = "[hidden]"
_SHORTEST = 6  # characters: replacing shorter ones would make lines unreadable, and hide nothing
_URL_CREDENTIALS = re.compile(r"://[^\s/@\"]*@")
_SIGNING_SECRET = re.compile(r"whsec_[A-Za-z0-9+/=_-]+")
_SURROGATE = re.compile(r"\\ud[89a-f][0-9a-f]{2}")
# What JSON lets through and a terminal obeys or a reader cannot see: C1 controls, separators, direction, zero width.
_UNPRINTABLE = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
correlation: ContextVar[str | None] = ContextVar("correlation", default=None)
_file: LogFile | None = None  # of this process
_logger: Any = None  # as `setup` made it; putting one together for each line took 14 µs of every message


def setup_for(config: Settings, process: str, *, also_hide: Iterable[str] = ()) -> None:
    """Log as a process of this deployment: at its level, in its form, without its secrets and those in `also_hide`."""
    from shared.redaction import open_redaction

    secrets = (*config.secret_values(), *also_hide)
    file = LogFile(config.log_dir, process) if config.log_dir is not None else None
    setup(config.log_level, process, secrets, open_redaction(config), form=config.log_format, file=file)


def setup(
    level: str,
    process: str,
    secrets: Iterable[str] = (),
    redaction: Redaction | None = None,
    *,
    form: str = "auto",
    file: LogFile | None = None,
) -> None:
    """Log to standard error from here on, as `process`. Other libraries' warnings come out in the same form.

    The same lines go to `file` as JSON; the file of an earlier call is closed.

    With a redaction, a line shows the ids of people and chats as keyed hashes: see shared/context/redact.py.
    `form` is `text`, `json`, or `auto`: text where standard error is a terminal.
    """

    def add_context(_: Any, __: str, event: Any) -> Any:
        event["process"] = process
        if (message := correlation.get()) is not None:
            event["message"] = message
        return event

    def redact(_: Any, __: str, event: Any) -> Any:
        return event if redaction is None else redaction.log_event(event)

    hide = hiding(secrets)

    def render_json(_: Any, __: str, event: Any) -> str:
        line = hide(_json(event))
        if file is not None:
            file.write(line)
        return line

    def render_text(_: Any, __: str, event: Any) -> str:
        if file is not None:
            file.write(hide(_json(event)))
        return readable(event, hide, coloured="NO_COLOR" not in os.environ)

    _write_to(file)
    as_text = form == "text" or (form == "auto" and sys.stderr.isatty())

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            add_context,
            structlog.processors.format_exc_info,
            redact,
            render_text if as_text else render_json,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    global _logger
    _logger = structlog.get_logger().bind()
    handler = _Forward()
    logging.basicConfig(level=max(_LEVELS[level], logging.WARNING), handlers=[handler], force=True)


def reset() -> None:
    """Log as if `setup` had not been called: with structlog's own defaults, and to no file."""
    global _logger
    _logger = None
    _write_to(None)
    structlog.reset_defaults()


def _write_to(file: LogFile | None) -> None:
    global _file
    if _file is not None and _file is not file:
        _file.close()
    _file = file


def hiding(secrets: Iterable[str]) -> Callable[[str], str]:
    """Takes these secrets out of a rendered line, however they were spelled, and whatever looks like one."""
    spelled = {form for secret in secrets for form in (secret, unquote(secret), quote(secret, safe=""))}
    shown = {orjson.dumps(form).decode()[1:-1] for form in spelled if len(form) >= _SHORTEST}
    longest_first = sorted(shown, key=len, reverse=True)

    def hide(line: str) -> str:
        for secret in longest_first:
            if secret in line:
                line = line.replace(secret, _HIDDEN)
        if "whsec_" in line:
            line = _SIGNING_SECRET.sub(_HIDDEN, line)
        if "://" in line:
            line = _URL_CREDENTIALS.sub(f"://{_HIDDEN}@", line)
        return line

    return hide


def readable(event: dict[str, Any], hide: Callable[[str], str], *, coloured: bool) -> str:
    """An event as a line for a person: time, level, process, words, then what belongs to it. A traceback follows, indented.

    Every word goes through JSON's escapes, so it can neither begin a line of its own nor move the cursor.
    """
    fields = dict(event)
    level, words = str(fields.pop("level", "info")), str(fields.pop("event", ""))
    at, process = str(fields.pop("timestamp", "")), str(fields.pop("process", ""))
    traceback = str(fields.pop("exception", ""))
    clock = datetime.fromisoformat(at).astimezone().strftime("%H:%M:%S") if at else ""
    colour = _COLOURS.get(level, "") if coloured else ""
    shown = f"{colour}{level:<7}\x1b[0m" if colour else f"{level:<7}"
    rest = [_escaped(words), *(f"{_escaped(name)}={_word(value)}" for name, value in fields.items())]
    lines = [f"{clock} {shown} {_escaped(process):<9} {hide(' '.join(rest))}"]
    lines += [f"    {hide(_escaped(line))}" for line in traceback.split("\n") if line]
    return "\n".join(lines)


def _word(value: Any) -> str:
    text = _json(value)
    inner = text[1:-1] if isinstance(value, str) else text
    return inner if _PLAIN_WORD.fullmatch(inner) else text


def _escaped(text: str) -> str:
    return _json(text)[1:-1]


def _json(value: Any) -> str:
    try:
        line = orjson.dumps(value, default=str).decode()
    except TypeError:  # half a surrogate pair: no reason to lose the line
        line = _SURROGATE.sub(r"\\ufffd", json.dumps(value, default=str))
    return _one_line(line)


def _one_line(line: str) -> str:
    """The same JSON, with what a terminal should not see in escaped form."""
    if line.isascii():
        return line
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


class _Forward(logging.Handler):
    """The standard library's records as lines of ours."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger(record.name).log(record.levelno, record.getMessage(), exc_info=record.exc_info or None)


def get() -> Any:
    """The logger of this process, as the last `setup` made it."""
    return _logger if _logger is not None else structlog.get_logger()
