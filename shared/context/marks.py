"""What the `data` of a transcript row may say. Every key has its name, its meaning and its reader here, and nowhere else.

| key | on | value |
|---|---|---|
| `media` | any | list of {url, type, name}: files by reference; `blob:` addresses are files that were kept (shared/blobs) |
| `sender`, `sender_id` | user | who wrote it: the display name, and the platform's stable id |
| `earlier` | user | what the chat said before it that was not addressed to the agent |
| `earlier_by` | user | who said that: the platform's id. Missing in older rows, and where the platform did not say |
| `asked_by` | user | {platform, user, user_alt}: who asked for the background task that begins with this row |
| `at` | any | wall clock, ms: when it was said |
| `command` | user, assistant | true: a slash command or its answer; people see it, the model does not |
| `proactive` | assistant | true: sent to the chat without having been asked |
| `hidden` | any | true: automation's; the model sees it, people do not |
| `tool_calls` | assistant | list of {id, name, arguments}; arguments are JSON as text. With `unread`, `{}` stands for arguments that were no object |
| `tool_call_id`, `name` | tool | which call this answers, and the tool's name |
| `may_have_happened` | tool | true: nobody saw how this call ended, and it was not run again |
| `reasoning` | assistant | what the model thought before it spoke, as text |
| `thinking` | assistant | the same as a list of the provider's own blocks, with their signatures; replayed as it is |
| `blocks` | user, assistant | list of content blocks in the provider's own form, replayed as it is; `text` is what people read of it |
| `usage` | assistant | what the answer cost: see `workers/agents/llm.py` |
| `seeded` | any | true: copied from the conversation around a thread when the thread began |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shared.codec import from_fields
from shared.messages import Entry, Inbound, Kind, Media

MEDIA = "media"
SENDER, SENDER_ID = "sender", "sender_id"
EARLIER, EARLIER_BY = "earlier", "earlier_by"
ASKED_BY = "asked_by"
AT = "at"
COMMAND, PROACTIVE, HIDDEN = "command", "proactive", "hidden"
TOOL_CALLS, TOOL_CALL_ID, NAME = "tool_calls", "tool_call_id", "name"
UNREAD = "unread"  # in a call of `tool_calls`
MAY_HAVE_HAPPENED = "may_have_happened"
REASONING, THINKING, BLOCKS = "reasoning", "thinking", "blocks"
USAGE = "usage"
SEEDED = "seeded"
REMOVED = (
    "(removed)"  # the text of a row of several people whose words were removed, because their person was forgotten
)
PICTURES = "pictures"  # only in a prompt, never stored: the pictures of a row that the model sees

# what is kept beside the text in a window
REPLAYED = (PROACTIVE, TOOL_CALLS, TOOL_CALL_ID, NAME, REASONING, THINKING, BLOCKS, PICTURES)


def user_row(inbound: Inbound) -> Entry:
    """The row that an inbound becomes."""
    said = {
        MEDIA: inbound.media,
        SENDER: inbound.source.user_name,
        SENDER_ID: sender_id(inbound),
        EARLIER: inbound.earlier,
        EARLIER_BY: inbound.earlier_by,
        ASKED_BY: _asked_by(inbound),
        AT: inbound.sent_at or inbound.received_at,
    }
    return Entry("user", inbound.text, inbound.id, {key: value for key, value in said.items() if value})


def _asked_by(inbound: Inbound) -> dict[str, str | None] | None:
    """Who asked for background work. Its row is of nobody on a platform, and the records that say it are kept for some days."""
    if inbound.kind is not Kind.TASK:
        return None
    return {name: getattr(inbound.asker, name) for name in ("platform", "user", "user_alt")}


def sender_id(inbound: Inbound) -> str | None:
    """Who said it, as its row names them."""
    return inbound.source.user or inbound.source.user_alt


def command_row(entry: Entry) -> Entry:
    """The row as a command's, or as the answer to one."""
    return Entry(entry.role, entry.text, entry.inbound_id, {**entry.data, COMMAND: True})


def seed_row(entry: Entry) -> Entry:
    """The row as a thread begins with it. It was answered, and paid for, elsewhere."""
    kept = {key: value for key, value in entry.data.items() if key != USAGE}
    return Entry(entry.role, entry.text, None, {**kept, SEEDED: True})


def is_user(entry: Entry) -> bool:
    """Whether a turn begins here: a user's own words, not a command."""
    return entry.role == "user" and not entry.data.get(COMMAND)


def is_proactive(entry: Entry) -> bool:
    return entry.role == "assistant" and bool(entry.data.get(PROACTIVE))


def calls(entry: Entry) -> tuple[Mapping[str, Any], ...]:
    """The tool calls that a row makes, as far as they can be answered: each has an id and a name."""
    if entry.role != "assistant":
        return ()
    made = entry.data.get(TOOL_CALLS) or ()
    return tuple(call for call in made if isinstance(call, Mapping) and _named(call.get("id"), call.get("name")))


def is_finished(entry: Entry) -> bool:
    """Whether a row of a model is a whole answer: it makes no calls."""
    return entry.role == "assistant" and bool(entry.text) and not calls(entry)


def answers(entry: Entry) -> str | None:
    """The id of the tool call that a row answers."""
    id = entry.data.get(TOOL_CALL_ID) if entry.role == "tool" else None
    return id if _named(id) else None


def _named(*names: Any) -> bool:
    return all(isinstance(name, str) and name for name in names)


def text_block(text: str) -> dict[str, str]:
    """A content block in the form that all providers read."""
    return {"type": "text", "text": text}


def is_text_block(block: Any) -> bool:
    return isinstance(block, Mapping) and isinstance(block.get("text"), str)


def media_of(entry: Entry) -> tuple[Media, ...]:
    """A row's media, whether it was just made or read back from a store."""
    found: Iterable[Any] = entry.data.get(MEDIA) or ()
    return tuple(
        item if isinstance(item, Media) else from_fields(Media, dict(item))
        for item in found
        if isinstance(item, Media) or (isinstance(item, Mapping) and isinstance(item.get("url"), str))
    )
