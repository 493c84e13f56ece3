"""What a Slack message brings along of others, as quoted words: a message that is forwarded stands beside the text, not in it."""

from __future__ import annotations

from typing import Any

from producers.fields import items, name, text
from producers.slack.text import readable


def quoted(event: dict[str, Any], bot_user: str) -> str:
    """The words of forwarded messages and previews, each line behind a mark. They address nobody, and are no commands."""
    said = [_said(attachment, bot_user) for attachment in items(event, "attachments")]
    return "\n\n".join("\n".join(f"> {line}".rstrip() for line in words.splitlines()) for words in said if words)


def _said(attachment: dict[str, Any], bot_user: str) -> str:
    """Whose words they are, and the words; without those, what Slack shows where it can show no more."""
    words = readable(text(attachment, "text") or "", bot_user).text
    if not words:
        return readable(text(attachment, "fallback") or "", bot_user).text
    author = name(attachment, "author_name")
    return f"{author}: {words}" if author else words
