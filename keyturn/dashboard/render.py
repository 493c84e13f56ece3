"""How values become HTML. Every text is escaped: templates have no way to say otherwise, and a test looks for one."""

from __future__ import annotations

import shlex
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jinja2
import orjson
from markupsafe import Markup, escape

from shared import VERSION
from shared.reading.trace import reason_word

HERE = Path(__file__).parent
STATIC = {
    "keyturn.css": ("text/css; charset=utf-8", (HERE / "static/keyturn.css").read_bytes()),
    "keyturn.js": ("text/javascript; charset=utf-8", (HERE / "static/keyturn.js").read_bytes()),
    "icon.svg": ("image/svg+xml", (HERE / "static/icon.svg").read_bytes()),
}
STAMP = sha256(b"".join(content for _, content in STATIC.values())).hexdigest()[
    :12
]  # of a URL that may be kept for ever
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control, format (bidi, zero width), lone surrogates, line separators


def render(template: str, values: Mapping[str, Any]) -> str:
    """A page or a part of one."""
    return _TEMPLATES.get_template(template).render(**values)


def shown(value: object) -> str:
    """A stranger's text on a page: characters that hide or reorder others are replaced."""
    text = "" if value is None else str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if char in "\n\t" or unicodedata.category(char) not in _HIDDEN else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )


def unchanged(text: str) -> Markup:
    """A stranger's text in a field that is sent back to us: escaped, with every character that it has, hidden ones too."""
    return escape(text)


def when(at: datetime | None) -> str:
    """A time for a person, in UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") if at is not None else "–"


def iso(at: datetime) -> str:
    """A time for a program: what `<time datetime>` holds."""
    return at.astimezone(UTC).isoformat(timespec="seconds")


def duration(seconds: float) -> str:
    """A time span in its two largest units."""
    whole = int(seconds)
    for size, unit, smaller, small in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {small}" if rest else "")
    return f"{seconds:.1f} s" if 0 < seconds < 10 else f"{whole} s"


def took(ms: int) -> str:
    """A time span that may be below a second."""
    return f"{ms} ms" if ms < 1000 else duration(ms / 1000)


def until(at: datetime) -> str:
    """How long it is until then; what is over is over."""
    seconds = (at - datetime.now(UTC)).total_seconds()
    return f"in {duration(seconds)}" if seconds > 0 else "now"


def ago(at: datetime | None) -> str:
    """How long ago something was."""
    if at is None:
        return "–"
    seconds = max(0, int((datetime.now(UTC) - at).total_seconds()))
    return f"{seconds} s" if seconds < 10 else duration(seconds)


def number(count: float) -> str:
    return f"{count:,}" if isinstance(count, int) else f"{count:,.1f}"


def link(path: str, **fields: object) -> str:
    """A path with a query. The values are escaped, so a key or an id leads nowhere else."""
    given = {name: value for name, value in fields.items() if value is not None}
    return f"{path}?{urlencode(given, errors='replace')}" if given else path


def command(*words: object) -> str:
    """A command line that a shell reads as these words, whatever is in them."""
    return shlex.join(["keyturn", *map(shown, words)])


def pretty(payload: str) -> str:
    """A payload for a person: indented where it is JSON."""
    try:
        return orjson.dumps(orjson.loads(payload), option=orjson.OPT_INDENT_2).decode()
    except orjson.JSONDecodeError:
        return payload


def _templates() -> jinja2.Environment:
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: shown(value) if isinstance(value, str) and not hasattr(value, "__html__") else value,
    )
    templates.filters.update(
        {
            "when": when,
            "iso": iso,
            "ago": ago,
            "duration": duration,
            "took": took,
            "until": until,
            "number": number,
            "pretty": pretty,
            "unchanged": unchanged,
            "word": reason_word,
        }
    )
    templates.globals.update({"link": link, "command": command, "version": VERSION, "stamp": STAMP})
    return templates


_TEMPLATES = _templates()
