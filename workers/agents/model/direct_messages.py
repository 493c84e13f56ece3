"""Transcript rows as messages for a model, and a model's answer as the marks of a row: what one writes, the other sends back.

A block of `thinking` is {type: thinking, thinking, signature} or {type: redacted_thinking, data}, as providers write them.
Ours have besides: `provider` (unset: anthropic, whose form it is), `id` and `details`, which some providers want back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel

from shared.context.marks import (
    BLOCKS,
    NAME,
    PICTURES,
    REASONING,
    THINKING,
    TOOL_CALL_ID,
    calls,
    is_text_block,
    text_block,
)
from shared.messages import Entry
from workers.agents.model.contract import Piece

ANTHROPIC, REDACTED = "anthropic", "redacted_thinking"
IN_CONTENT = "content"  # the id of a thought that stood in the text, between tags


def messages(rows: Sequence[Entry], model: Model | None, seen: Mapping[str, bytes] | None = None) -> list[ModelMessage]:
    """The rows in the order and form that the model's provider wants. A row of thoughts that it does not take is left out.
    Without a model, no thoughts are sent. `seen` are the bytes of pictures by their placeholders."""
    return [message for row in rows if (message := _message(row, model, seen or {})).parts]


def reasoning_of(response: ModelResponse) -> str:
    """What the model thought before it spoke, as text."""
    return "".join(part.content for part in response.parts if isinstance(part, ThinkingPart)).strip()


def marks_of(response: ModelResponse) -> dict[str, Any]:
    """What else of an answer is kept: thoughts that the provider wants back, and blocks where text alone loses something."""
    thoughts = [part for part in response.parts if isinstance(part, ThinkingPart) and _is_wanted_back(part)]
    texts = [part for part in response.parts if isinstance(part, TextPart)]
    found = {
        THINKING: [_thinking_block(part) for part in thoughts],
        BLOCKS: [_content_block(part) for part in texts] if len(texts) > 1 or _has_details(texts) else [],
    }
    return {name: value for name, value in found.items() if value}


def _message(row: Entry, model: Model | None, seen: Mapping[str, bytes]) -> ModelMessage:
    if row.role == "assistant":
        response = ModelResponse([*_texts(row), *_calls(row)])
        thoughts = [part for part in _thoughts(row) if model is not None and _takes(model, response, part)]
        response.parts = [*thoughts, *response.parts]
        return response
    if row.role == "tool":
        return ModelRequest([ToolReturnPart(row.data.get(NAME) or "tool", row.text, row.data[TOOL_CALL_ID])])
    content = [part for block in row.data.get(BLOCKS) or () if (part := _content(block)) is not None]
    if pictures := [one for one in row.data.get(PICTURES) or () if one.placeholder in seen]:
        content = content or [row.text]
        content += [BinaryContent(seen[one.placeholder], media_type=one.type) for one in pictures]
    return ModelRequest([UserPromptPart(content or row.text)])


def _texts(row: Entry) -> list[TextPart]:
    blocks = [block for block in row.data.get(BLOCKS) or () if is_text_block(block) and block["text"]]
    if not blocks:
        return [TextPart(row.text)] if row.text else []
    return [TextPart(block["text"], **_origin(block)) for block in blocks]


def _calls(row: Entry) -> Iterator[ToolCallPart]:
    return (ToolCallPart(call["name"], call.get("arguments"), call["id"]) for call in calls(row))


def _thoughts(row: Entry) -> list[ThinkingPart]:
    blocks = [block for block in row.data.get(THINKING) or () if isinstance(block, Mapping)]
    if not blocks:
        return [ThinkingPart(row.data[REASONING])] if row.data.get(REASONING) else []
    return [_thinking_part(block) for block in blocks]


def _takes(model: Model, response: ModelResponse, part: ThinkingPart) -> bool:
    """Whether the provider reads the thought as one. It would become text otherwise, and models imitate what they read."""
    if not isinstance(model, OpenAIChatModel):
        return bool(part.signature) and model.accepts_stateless_artifacts(response, part)
    how = model.profile.get("openai_chat_send_back_thinking_parts", "auto")
    return how == "field" or (how == "auto" and bool(part.id) and part.provider_name == model.system)


def _is_wanted_back(part: ThinkingPart) -> bool:
    return bool(part.signature or part.provider_details or (part.id and part.id != IN_CONTENT))


def _thinking_block(part: ThinkingPart) -> dict[str, Any]:
    if part.id == REDACTED:
        return {"type": REDACTED, "data": part.signature, "provider": part.provider_name}
    block = {
        "type": "thinking",
        "thinking": part.content,
        "signature": part.signature,
        "id": part.id,
        "provider": part.provider_name,
        "details": part.provider_details,
    }
    return {name: value for name, value in block.items() if value is not None}


def _thinking_part(block: Mapping[str, Any]) -> ThinkingPart:
    if block.get("type") == REDACTED:
        return ThinkingPart("", signature=_text(block, "data"), id=REDACTED, **_origin(block, ANTHROPIC))
    thought = _text(block, "thinking") or _text(block, "text") or ""
    return ThinkingPart(
        thought, signature=_text(block, "signature"), id=_text(block, "id"), **_origin(block, ANTHROPIC)
    )


def _has_details(parts: Sequence[TextPart]) -> bool:
    return any(part.provider_details for part in parts)


def _content_block(part: TextPart) -> dict[str, Any]:
    block: dict[str, Any] = dict(text_block(part.content))
    return (
        {**block, "provider": part.provider_name, "details": part.provider_details} if part.provider_details else block
    )


def _origin(block: Mapping[str, Any], otherwise: str | None = None) -> dict[str, Any]:
    details = block.get("details")
    return {
        "provider_name": _text(block, "provider") or otherwise,
        "provider_details": details if isinstance(details, dict) else None,
    }


def _content(block: Any) -> UserContent | None:
    """A block of a user's message; None for a kind that no request can carry."""
    if not isinstance(block, Mapping):
        return None
    if is_text_block(block):
        return str(block["text"])
    source, image = block.get("source"), block.get("image_url")
    if isinstance(source, Mapping):  # Anthropic's form
        if (data := _text(source, "data")) is not None:
            return _picture(f"data:{source.get('media_type')};base64,{data}", {})
        return _picture(_text(source, "url"), {})
    if isinstance(image, Mapping):  # OpenAI's
        detail = _text(image, "detail")
        return _picture(_text(image, "url"), {"detail": detail} if detail else {})
    return _picture(image if isinstance(image, str) else None, {})


def _picture(url: str | None, about: dict[str, Any]) -> UserContent | None:
    if url is None:
        return None
    if url.startswith(("https://", "http://")):
        return ImageUrl(url, vendor_metadata=about or None)
    try:
        picture = BinaryContent.from_data_uri(url)
    except ValueError:
        return None
    picture.vendor_metadata = about or None
    return picture if picture.is_image else None


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    return value if isinstance(value, str) and value else None


def piece_of(event: object) -> Piece | None:
    """What an event of a stream adds to the text or to the thoughts; None: neither."""
    match event:
        case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return Piece(text) if text else None
        case (
            PartStartEvent(part=ThinkingPart(content=text))
            | PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text))
        ):
            return Piece(thought=text) if text else None
    return None
