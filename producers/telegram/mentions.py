"""To whom a text speaks: mentions and commands, found by their entities. Offsets and lengths are UTF-16 code units."""

from __future__ import annotations

from typing import Any

from producers.fields import number, object_
from shared.codec import storable
from shared.errors import Malformed
from shared.value import value

_ADDRESSING = ("mention", "bot_command", "text_mention")  # the types of entities that say to whom


@value
class AddressedText:
    """A text without its address: `@bot hello` is "hello", `/new@bot` is "/new"."""

    text: str
    mentioned: bool = False
    other_bot: bool = False  # a command to another bot of the group


@value
class _Entity:
    kind: str
    start: int
    end: int
    word: str
    user: str | None


def addressed(
    text: str, entities: list[dict[str, Any]], bot_id: str, username: str, *, is_direct: bool = False
) -> AddressedText:
    """Only entities count: a text that merely looks like a mention, in code or as part of an address, is none."""
    if not _may_address(entities):
        return AddressedText(storable(text))
    units = text.encode("utf-16-le", "surrogatepass")
    spans = [_span(entity, units) for entity in entities]
    ours = f"@{username}".casefold()
    mentioned = any(_names(span, bot_id, ours) for span in spans)
    first = next((span for span in spans if span.start == 0 and span.kind in ("mention", "bot_command")), None)
    if first is None:
        return AddressedText(storable(text), mentioned)
    rest = units[2 * first.end :].decode("utf-16-le", "replace")
    if first.kind == "bot_command":
        command, at, to = first.word.partition("@")
        if at and f"@{to}".casefold() != ours and not is_direct:
            return AddressedText(storable(text), other_bot=True)
        return AddressedText(storable(command + rest), mentioned)
    if first.word.casefold() == ours and (remaining := rest.lstrip(" ,:\n")):
        return AddressedText(storable(remaining), mentioned)
    return AddressedText(storable(text), mentioned)


def _names(span: _Entity, bot_id: str, ours: str) -> bool:
    if span.kind == "mention":
        return span.word.casefold() == ours
    if span.kind == "bot_command":
        return span.word.casefold().endswith(ours)
    return span.kind == "text_mention" and span.user == bot_id


def _may_address(entities: list[dict[str, Any]]) -> bool:
    """Whether one of them can say to whom the text speaks; most are bold words and links. Malformed for one that lies nowhere."""
    for entity in entities:
        _place(entity)
    return any(entity.get("type") in _ADDRESSING for entity in entities)


def _place(entity: dict[str, Any]) -> tuple[int, int]:
    start, length = number(entity, "offset"), number(entity, "length")
    if start < 0 or length < 0:
        raise Malformed("an entity lies outside its text")
    return start, length


def _span(entity: dict[str, Any], units: bytes) -> _Entity:
    start, length = _place(entity)
    word = units[2 * start : 2 * (start + length)].decode("utf-16-le", "replace")
    user = str(object_(entity, "user").get("id")) if entity.get("type") == "text_mention" else None
    return _Entity(str(entity.get("type")), start, start + length, word, user)
