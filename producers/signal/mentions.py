"""To whom a text speaks. Signal puts one placeholder into it for each mention; offsets are UTF-16 code units."""

from __future__ import annotations

from typing import Any

from producers.fields import name, number
from shared.codec import storable
from shared.errors import Malformed
from shared.value import value


@value
class SignalAccount:
    """Who we are there. A daemon names people by number, by uuid or by both."""

    number: str
    uuid: str | None = None

    def is_me(self, *ids: str | None) -> bool:
        return any(id is not None and id in (self.number, self.uuid) for id in ids)


@value
class SignalSaid:
    """A text with names for placeholders, and without ours where it begins with it."""

    text: str
    mentioned: bool = False


def addressed(text: str, mentions: list[dict[str, Any]], me: SignalAccount) -> SignalSaid:
    """Only mentions count that Signal lists: a text that merely looks like one is none."""
    spans = sorted((_span(mention, me) for mention in mentions), key=lambda span: span.start)
    units, done, at = text.encode("utf-16-le", "surrogatepass"), list[str](), 0
    for span in spans:
        if span.start < at:
            continue  # within another one
        done += [units[2 * at : 2 * span.start].decode("utf-16-le", "replace"), f"@{span.name}"]
        at = span.end
    rest = units[2 * at :].decode("utf-16-le", "replace")
    is_address = len(done) == 2 and not done[0].strip() and spans[0].is_me
    said = rest.lstrip(" ,:\n") if is_address and rest.strip() else "".join([*done, rest])
    return SignalSaid(storable(said), any(span.is_me for span in spans))


@value
class _StyledSpan:
    start: int
    end: int
    name: str
    is_me: bool


def _span(mention: dict[str, Any], me: SignalAccount) -> _StyledSpan:
    start, length = number(mention, "start"), number(mention, "length")
    if start < 0 or length < 0:
        raise Malformed("a mention lies outside its text")
    called = next((found for field in ("name", "number", "uuid") if (found := name(mention, field))), "someone")
    return _StyledSpan(start, start + length, called, me.is_me(name(mention, "number"), name(mention, "uuid")))
