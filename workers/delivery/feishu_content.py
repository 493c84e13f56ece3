"""Replies in the forms that Feishu takes: Markdown in rich text, plain text, and a link.

Nothing that a model writes calls a whole chat: of `<at …>` only a mention of one person by open id stays what it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from shared.errors import Transient
from shared.messages import Part
from workers.delivery.markdown import heading_in

CARD = "interactive"  # the type of a message that is a card
_MENTION = re.compile(r'<at user_id="ou_[A-Za-z0-9_-]{1,64}">[^<>]{0,100}</at>')
_AT = re.compile(r"<(?=[\s/]*at\b)", re.I)
_APART = "<\u200b"  # a space of no width: nobody sees it, and the tag is none any more
_FENCE = re.compile(r" {0,3}(`{3,})[^`\n]*")
_PICTURE = re.compile(r"!\[([^\[\]\n]*)\]\(")


def rich(markdown: str) -> dict[str, str]:
    """A message of rich text. Feishu's Markdown has no headings and no pictures from elsewhere: these are bold, and links."""
    return _message("post", {"zh_cn": {"content": [[{"tag": "md", "text": _adapted(harmless(markdown))}]]}})


def card(part: Part) -> dict[str, str]:
    """A question with its buttons, or without those that are gone. A button carries its command and where the card is: Feishu does
    not say that of a pressed one."""
    place = {"chat": part.to.chat, "chat_type": part.chat_type, "thread": part.to.thread}
    buttons = [
        {
            "tag": "button",
            "type": "default",
            "text": {"tag": "plain_text", "content": choice.label},
            "value": {"command": choice.command, **{name: value for name, value in place.items() if value}},
        }
        for choice in part.choices
    ]
    text = {"tag": "markdown", "content": _adapted(harmless(part.text))}
    elements = [text, {"tag": "action", "actions": buttons}] if buttons else [text]
    return _message(CARD, {"config": {"wide_screen_mode": True, "update_multi": True}, "elements": elements})


def plain(text: str) -> dict[str, str]:
    return _message("text", {"text": harmless(text)})


def link(url: str, label: str) -> dict[str, str]:
    return _message("post", {"zh_cn": {"content": [[{"tag": "a", "text": label, "href": url}]]}})


def uploaded(kind: str, field: str, data: Mapping[str, Any]) -> dict[str, str]:
    """A message that is a file which Feishu was given. Transient where Feishu did not say by which key it knows it."""
    key = data.get(field)
    if not isinstance(key, str) or not key:
        raise Transient(f"Feishu: an upload without {field}")
    return _message(kind, {field: key})


def harmless(text: str) -> str:
    """The text with every tag `<at` made none, but for mentions of one person."""
    done, at = [], 0
    for found in _MENTION.finditer(text):
        done += [_AT.sub(_APART, text[at : found.start()]), found[0]]
        at = found.end()
    return "".join([*done, _AT.sub(_APART, text[at:])])


def _adapted(markdown: str) -> str:
    """Headings and pictures as Feishu knows them, outside of code."""
    lines, mark = [], ""
    for line in markdown.split("\n"):
        if fence := _FENCE.fullmatch(line):
            if not mark:
                mark = fence[1]
            elif len(fence[1]) >= len(mark) and not line.strip(" `\t"):
                mark = ""
        elif not mark:
            line = _outside_code(line)
        lines.append(line)
    return "\n".join(lines)


def _outside_code(line: str) -> str:
    indent = len(line) - len(line.lstrip(" "))
    heading = heading_in(line[indent:]) if indent <= 3 else None
    if heading is not None and "**" not in heading:
        line = f"**{heading}**"
    return _PICTURE.sub(lambda found: f"[{found[1] or 'picture'}](", line) if "`" not in line else line


def _message(kind: str, content: dict[str, Any]) -> dict[str, str]:
    return {"msg_type": kind, "content": orjson.dumps(content).decode()}
