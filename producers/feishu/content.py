"""What a Feishu message says: its content, a JSON text of another shape for each type, as words and files."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from producers.fields import ITEM_LIMIT, items, name, text
from producers.heard import parse_json
from shared.codec import storable
from shared.errors import Malformed
from shared.messages import Media
from shared.platforms.feishu import FILE_SCHEME
from shared.value import value

_PLACEHOLDER = re.compile(r"@_user_[0-9]+|@_all")
_PLACEHOLDER_AND_SPACE = re.compile(r"[ ]?(@_user_[0-9]+|@_all)")
_ALL = "@_all"
_TYPES = mimetypes.MimeTypes()  # Python's own table: the same on every machine
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.~=-]{0,255}")


@value
class FeishuPerson:
    """Somebody whom a message mentions. `is_us`: our bot."""

    name: str
    is_us: bool


@value
class FeishuSaid:
    """The words of a message without the mentions of the bot, and its files."""

    text: str
    media: tuple[Media, ...] = ()


def people(message: dict[str, Any], bot_open_id: str) -> dict[str, FeishuPerson]:
    """Whom a message mentions, by the placeholder that stands for them in its text."""
    found: dict[str, FeishuPerson] = {}
    for mention in items(message, "mentions"):
        key, id = text(mention, "key"), mention.get("id")
        if key is None:
            raise Malformed("key is not text")
        open_id = text(id, "open_id") if isinstance(id, dict) else id if isinstance(id, str) else None
        found[key] = FeishuPerson(name(mention, "name") or key.lstrip("@"), is_us=open_id == bot_open_id)
    return found


def said(message: dict[str, Any], message_id: str, mentioned: Mapping[str, FeishuPerson]) -> FeishuSaid:
    """What a message says. A type that we cannot read says its name: `[sticker]`. The content of some of those is no JSON."""
    kind, content = text(message, "message_type") or "", text(message, "content") or ""
    read = _READERS.get(kind)
    if read is None:
        return FeishuSaid(storable(f"[{kind[:40]}]"))
    return read(parse_json(content.encode(errors="surrogatepass")), message_id, mentioned)


def _text(content: dict[str, Any], message_id: str, mentioned: Mapping[str, FeishuPerson]) -> FeishuSaid:
    words = text(content, "text") or ""
    while (found := _PLACEHOLDER.match(words.lstrip())) and (person := mentioned.get(found[0])) and person.is_us:
        words = words.lstrip()[found.end() :].lstrip(" ,:\n，：")  # what sets an address off from the rest
    return FeishuSaid(storable(_named(words, mentioned)))


def _named(words: str, mentioned: Mapping[str, FeishuPerson]) -> str:
    """The words with names in place of placeholders, and without the mentions of the bot."""

    def ours(found: re.Match[str]) -> str:
        person = mentioned.get(found[1])
        return "" if person is not None and person.is_us else found[0]

    def named(found: re.Match[str]) -> str:
        person = mentioned.get(found[0])
        return f"@{person.name}" if person is not None else "@all" if found[0] == _ALL else found[0]

    return _PLACEHOLDER.sub(named, _PLACEHOLDER_AND_SPACE.sub(ours, words)).strip()


def _post(content: dict[str, Any], message_id: str, mentioned: Mapping[str, FeishuPerson]) -> FeishuSaid:
    """Rich text: a title, and lines of elements. Feishu may wrap it by language: then the first one counts."""
    if "content" not in content:
        content = next((inner for inner in content.values() if isinstance(inner, dict) and "content" in inner), content)
    lines, media = [text(content, "title") or ""], list[Media]()
    for elements in _paragraphs(content):
        line = "".join(_element(element, mentioned) for element in elements)
        lines.append(line.lstrip() if elements and elements[0].get("tag") == "at" else line)
        media += (file for element in elements for file in _files(element, message_id))
    return FeishuSaid(storable("\n".join(lines).strip()), tuple(media))


def _paragraphs(content: dict[str, Any]) -> list[list[dict[str, Any]]]:
    found = content.get("content")
    if not isinstance(found, list) or len(found) > ITEM_LIMIT:
        raise Malformed("content is not a list of lines")
    return [items({"line": line}, "line") for line in found]


def _element(element: dict[str, Any], mentioned: Mapping[str, FeishuPerson]) -> str:
    tag = element.get("tag")
    if tag == "a":
        words, address = text(element, "text") or "", text(element, "href") or ""
        return f"{words} ({address})" if address and words != address else words
    if tag == "at":
        key = text(element, "user_id") or ""
        person = mentioned.get(key)
        if person is not None:
            return "" if person.is_us else f"@{person.name}"
        return "@all" if key in (_ALL, "all") else f"@{name(element, 'user_name') or key}"
    if tag == "code_block":
        return f"```{name(element, 'language') or ''}\n{text(element, 'text') or ''}\n```"
    if tag == "emotion":
        return f"[{name(element, 'emoji_type') or 'emoji'}]"
    if tag == "hr":
        return "---"
    return _named_within(text(element, "text") or "", mentioned)


def _named_within(words: str, mentioned: Mapping[str, FeishuPerson]) -> str:
    """The same for a piece of a line: its spaces belong to the line."""
    return _named(f"|{words}|", mentioned)[1:-1]


def _files(element: dict[str, Any], message_id: str) -> Sequence[Media]:
    if element.get("tag") == "img":
        return (file_of(element, "image_key", message_id, "image/jpeg"),)
    if element.get("tag") == "media":
        return (file_of(element, "file_key", message_id, "video/mp4"),)
    return ()


def _one_file(field: str, usual_type: str) -> Callable[[dict[str, Any], str, Mapping[str, FeishuPerson]], FeishuSaid]:
    def read(content: dict[str, Any], message_id: str, mentioned: Mapping[str, FeishuPerson]) -> FeishuSaid:
        return FeishuSaid("", (file_of(content, field, message_id, usual_type),))

    return read


def file_of(fields: dict[str, Any], field: str, message_id: str, usual_type: str) -> Media:
    """A file is known by its message and its key; nothing is fetched here."""
    key, called = text(fields, field), name(fields, "file_name")
    if key is None or not _KEY.fullmatch(key):
        raise Malformed(f"{field} is not a key")
    kind = "image" if field == "image_key" else "file"
    guessed = _TYPES.guess_type(called)[0] if called is not None else None
    return Media(f"{FILE_SCHEME}{message_id}/{kind}/{key}", guessed or usual_type, called)


def _location(content: dict[str, Any], message_id: str, mentioned: Mapping[str, FeishuPerson]) -> FeishuSaid:
    where = ", ".join(filter(None, (name(content, field) for field in ("name", "latitude", "longitude"))))
    return FeishuSaid(storable(f"[location {where}]"))


_READERS: Mapping[str, Callable[[dict[str, Any], str, Mapping[str, FeishuPerson]], FeishuSaid]] = {
    "text": _text,
    "post": _post,
    "image": _one_file("image_key", "image/jpeg"),
    "file": _one_file("file_key", "application/octet-stream"),
    "audio": _one_file("file_key", "audio/ogg"),
    "media": _one_file("file_key", "video/mp4"),
    "location": _location,
}
