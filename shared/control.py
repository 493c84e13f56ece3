"""Commands as they are written, and those that do not wait behind the turn they are about: the control lane's.

A control message is journaled and numbered under a key of its own, `control:` and the session key, so that the order of
the conversation stays what it is. What it answers is said in the conversation.
"""

from __future__ import annotations

import re

CONTROL = frozenset({"stop", "status"})
_PREFIX = "control:"
_COMMAND = re.compile(r"/([a-z][a-z0-9_-]{0,31})(?:@\w+)?(?:\s+(.*))?", re.IGNORECASE | re.DOTALL)


def parse(text: str) -> tuple[str, str] | None:
    """The command's name and arguments, in any case, with or without @botname. None: this is for the agent."""
    match = _COMMAND.fullmatch(text.strip())
    return (match[1].lower(), (match[2] or "").strip()) if match else None


def is_control(text: str) -> bool:
    """Whether a message is for the control lane. Most are no commands at all, and cost a look at their first sign."""
    command = parse(text) if "/" in text[:1] or text[:1].isspace() else None
    return command is not None and command[0] in CONTROL


def control_key(session_key: str) -> str:
    """The key under which a conversation's control messages are numbered."""
    return _PREFIX + session_key


def is_control_key(key: str) -> bool:
    return key.startswith(_PREFIX)


def conversation_of(key: str) -> str:
    """The session key of a conversation, from its own key or from that of its control messages."""
    return key.removeprefix(_PREFIX)
