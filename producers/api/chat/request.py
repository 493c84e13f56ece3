"""The JSON of a chat completion request, and what it asks. Pure. Fields that we do not know are ignored, as clients expect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shared.codec import storable
from shared.context.marks import NAME, TOOL_CALL_ID, TOOL_CALLS
from shared.errors import Malformed
from shared.messages import Entry, Media
from shared.value import value

MESSAGES_LIMIT = 2000
TEXT_LIMIT = 200_000  # characters of the message that is to be answered
MEDIA_LIMIT = 20
NOT_SHOWN = "[A file was attached that cannot be shown here.]"
_INLINE = "data:"
_INSTRUCTIONS = ("system", "developer")


@value
class InlineImage:
    """A picture that stands in the request itself."""

    address: str  # data:image/png;base64,…
    where: str  # in the request


Shown = tuple[Media | InlineImage, ...]


@value
class ChatRequest:
    """What a caller asks: the last message of a user, and all that came before it."""

    model: str
    instructions: str
    history: tuple[Entry, ...]  # before `text`
    said: tuple[str, ...]  # by the user before `text`, without notes of files
    text: str
    media: Shown
    inline_characters: int  # of the pictures in the whole request
    is_streamed: bool
    wants_usage: bool  # at the end of a stream
    conversation: str  # as the body's metadata name it; may be empty
    user: str  # may be empty
    has_tools: bool


def read_request(fields: Mapping[str, Any]) -> ChatRequest:
    """The request in a body; Malformed names the field that is missing or of the wrong kind."""
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Malformed("messages is needed, as a list")
    if len(messages) > MESSAGES_LIMIT:
        raise Malformed(f"messages are more than {MESSAGES_LIMIT}")
    roles = [_role(message) for message in messages]
    last = max((n for n, role in enumerate(roles) if role == "user"), default=None)
    if last is None:
        raise Malformed("messages hold none of a user")
    text, media = _content(messages[last].get("content"), f"messages[{last}].content")
    if len(text) > TEXT_LIMIT:
        raise Malformed(f"messages[{last}].content is longer than {TEXT_LIMIT} characters")
    if not text.strip() and not media:
        raise Malformed(f"messages[{last}].content is empty")
    asked = [
        _content(message.get("content"), "messages") for n, message in enumerate(messages[:last]) if roles[n] == "user"
    ]
    told = [_text(message, n) for n, message in enumerate(messages) if roles[n] in _INSTRUCTIONS]
    rows = (_row(message, n) for n, message in enumerate(messages[:last]) if roles[n] not in _INSTRUCTIONS)
    options, metadata = _object(fields, "stream_options"), _object(fields, "metadata")
    return ChatRequest(
        model=_named(fields, "model"),
        instructions="\n\n".join(filter(None, told)),
        history=tuple(rows),
        said=tuple(words for words, _ in asked),
        text=text,
        media=media,
        inline_characters=sum(map(_inline_characters, messages)),
        is_streamed=_flag(fields, "stream"),
        wants_usage=_flag(options, "include_usage"),
        conversation=_named(metadata, "conversation_id"),
        user=_named(fields, "user"),
        has_tools=bool(fields.get("tools")),
    )


def _role(message: Any) -> str:
    role = message.get("role") if isinstance(message, dict) else None
    if role not in ("system", "developer", "user", "assistant", "tool", "function"):
        raise Malformed("messages: each has a role: system, developer, user, assistant or tool")
    return str(role)


def _row(message: Mapping[str, Any], n: int) -> Entry:
    """A message from before the last one, as a row that an agent reads."""
    role, data = message["role"], dict[str, Any]()
    text = _text(message, n)
    if role == "assistant" and (made := message.get("tool_calls")):
        data[TOOL_CALLS] = [_call(call, n) for call in _list(made, f"messages[{n}].tool_calls")]
    if role in ("tool", "function"):
        data = {TOOL_CALL_ID: _named(message, "tool_call_id"), NAME: _named(message, "name")}
        role = "tool"
    return Entry(role, text, data={name: found for name, found in data.items() if found})


def _call(call: Any, n: int) -> dict[str, str]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise Malformed(f"messages[{n}].tool_calls: each has a function")
    return {
        "id": _named(call, "id"),
        "name": _named(function, "name"),
        "arguments": _named(function, "arguments") or "{}",
    }


def _text(message: Mapping[str, Any], n: int) -> str:
    """The text of a message; of files in it there is a note."""
    text, media = _content(message.get("content"), f"messages[{n}].content")
    notes = (f"[image: {item.url}]" if isinstance(item, Media) else NOT_SHOWN for item in media)
    return "\n".join(filter(None, (text, *notes)))


def _content(content: Any, where: str) -> tuple[str, Shown]:
    """Text, or a list of parts: texts, images, and others, of which a note is left."""
    if content is None:
        return "", ()
    if isinstance(content, str):
        return storable(content), ()
    texts: list[str] = []
    media: list[Media | InlineImage] = []
    for part in _list(content, where):
        if not isinstance(part, dict):
            raise Malformed(f"{where}: parts are objects")
        if part.get("type") in ("text", "refusal"):
            texts.append(_named(part, str(part["type"])))
        elif (image := _image(part, where)) is not None and len(media) < MEDIA_LIMIT:
            media.append(image)
        else:
            texts.append(NOT_SHOWN)
    return "\n".join(texts), tuple(media)


def _image(part: Mapping[str, Any], where: str) -> Media | InlineImage | None:
    """An image by its address, or one that is in the request itself."""
    url = _address(part)
    if url.startswith(_INLINE):
        return InlineImage(url, where)
    return Media(storable(url), "image") if url.startswith(("https://", "http://")) and len(url) <= 4096 else None


def _address(part: Mapping[str, Any]) -> str:
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    return url if isinstance(url, str) else ""


def _inline_characters(message: Mapping[str, Any]) -> int:
    content = message.get("content")
    parts = content if isinstance(content, list) else ()
    addresses = (_address(part) for part in parts if isinstance(part, dict))
    return sum(len(address) for address in addresses if address.startswith(_INLINE))


def _list(found: Any, where: str) -> Sequence[Any]:
    if not isinstance(found, list):
        raise Malformed(f"{where} is neither text nor a list")
    return found


def _object(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = fields.get(name)
    if found is not None and not isinstance(found, dict):
        raise Malformed(f"{name} is not an object")
    return found or {}


def _named(fields: Mapping[str, Any], name: str) -> str:
    found = fields.get(name)
    if found is not None and not isinstance(found, str):
        raise Malformed(f"{name} is not text")
    return storable(found or "")


def _flag(fields: Mapping[str, Any], name: str) -> bool:
    found = fields.get(name)
    if found is not None and not isinstance(found, bool):
        raise Malformed(f"{name} is not true or false")
    return bool(found)
