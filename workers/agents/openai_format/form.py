"""A prompt as the body of a request, byte for byte the same for the same prompt: providers cache the longest common prefix."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from shared.context.marks import (
    BLOCKS,
    PICTURES,
    REASONING,
    THINKING,
    TOOL_CALL_ID,
    calls,
    is_text_block,
    text_block,
)
from shared.messages import Entry
from shared.value import value
from workers.agents.model.contract import ModelRefused, Prompt

_PICTURE = re.compile(r"https?://.|data:image/[a-z0-9.+-]+;base64,[A-Za-z0-9+/=_-]+$")


@value
class ServerForm:
    """What one server wants otherwise than others. `always_field`: it wants all thoughts back, in this field."""

    provider: str
    always_field: str = ""
    limit_field: str = "max_completion_tokens"


def body(model: str, prompt: Prompt, form: ServerForm, max_output_tokens: int | None) -> bytes:
    """The request, with placeholders for pictures. Refused where there is nothing to answer."""
    messages = [message for row in prompt.rows if (message := _message(row, form)) is not None]
    if not any(message["role"] != "assistant" for message in messages):
        raise ModelRefused("there is nothing to answer")
    told = [{"role": "system", "content": prompt.instructions}] if prompt.instructions else []
    asked: dict[str, Any] = {"model": model}
    if prompt.tools:
        asked["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.schema)},
            }
            for tool in prompt.tools
        ]
    if max_output_tokens is not None:
        asked[form.limit_field] = max_output_tokens
    asked |= {"stream": True, "stream_options": {"include_usage": True}, "messages": [*told, *messages]}
    return orjson.dumps(asked)


def thinking_marks(field: str, reasoning: str, form: ServerForm) -> dict[str, Any]:
    """What a row keeps of thoughts that came in a field: `_thoughts` sends them back in the same one."""
    if not field or not reasoning:
        return {}
    return {THINKING: [{"type": "thinking", "thinking": reasoning, "id": field, "provider": form.provider}]}


def _message(row: Entry, form: ServerForm) -> dict[str, Any] | None:
    if row.role == "tool":
        return {"role": "tool", "tool_call_id": row.data[TOOL_CALL_ID], "content": row.text}
    if row.role == "assistant":
        return _assistant(row, form)
    content = [part for block in row.data.get(BLOCKS) or () if (part := _content(block)) is not None]
    if pictures := row.data.get(PICTURES):
        content = content or [text_block(row.text)]
        content += [{"type": "image_url", "image_url": {"url": picture.placeholder}} for picture in pictures]
    return {"role": "user", "content": content or row.text}


def _assistant(row: Entry, form: ServerForm) -> dict[str, Any] | None:
    texts = [block["text"] for block in row.data.get(BLOCKS) or () if is_text_block(block)]
    made = [
        {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": _arguments(call)}}
        for call in calls(row)
    ]
    text, thoughts = "".join(texts) or row.text, _thoughts(row, form)
    if not (text or made or thoughts):
        return None
    message: dict[str, Any] = {"role": "assistant", "content": text or None, **thoughts}
    if made:
        message["tool_calls"] = made
        if form.always_field:
            message.setdefault(form.always_field, "")
    return message


def _thoughts(row: Entry, form: ServerForm) -> dict[str, str]:
    """The fields for thoughts of this provider's own. It would read others' as text, and models imitate what they read."""
    blocks = [block for block in row.data.get(THINKING) or () if isinstance(block, Mapping)]
    if form.always_field:
        said = "".join(str(block.get("thinking") or "") for block in blocks) or row.data.get(REASONING) or ""
        return {form.always_field: said} if said else {}
    found: dict[str, str] = {}
    for block in blocks:
        field, thought = block.get("id"), block.get("thinking")
        if block.get("provider") == form.provider and isinstance(field, str) and isinstance(thought, str) and thought:
            found[field] = found.get(field, "") + thought
    return found


def _arguments(call: Mapping[str, Any]) -> str:
    arguments = call.get("arguments")
    return arguments if isinstance(arguments, str) else orjson.dumps(arguments or {}).decode()


def _content(block: Any) -> dict[str, Any] | None:
    """A block of a user's message; None for a kind that no request can carry."""
    if not isinstance(block, Mapping):
        return None
    if is_text_block(block):
        return text_block(block["text"])
    source, image = block.get("source"), block.get("image_url")
    if isinstance(source, Mapping):  # Anthropic's form
        data = source.get("data")
        return _picture(f"data:{source.get('media_type')};base64,{data}" if data else source.get("url"))
    if isinstance(image, Mapping):  # OpenAI's
        return _picture(image.get("url"), image.get("detail"))
    return _picture(image)


def _picture(url: Any, detail: Any = None) -> dict[str, Any] | None:
    if not isinstance(url, str) or not _PICTURE.match(url):
        return None
    return {"type": "image_url", "image_url": {"url": url, **({"detail": detail} if isinstance(detail, str) else {})}}
