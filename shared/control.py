"""Commands as people write them, and which of them are control messages: those that do not wait behind a running turn.

A control message is journaled and numbered under a key of its own (`ControlKey`), so that the order of the conversation
stays what it is. Its answer is said in the conversation.
"""

from __future__ import annotations

import re

from shared.messages import Inbound

CONTROL_COMMANDS = frozenset({"stop", "status", "queue", "background", "bg", "btw"})
_COMMAND = re.compile(r"/([a-z][a-z0-9_-]{0,31})(?:@\w+)?(?:\s+(.*))?", re.IGNORECASE | re.DOTALL)


def parse(text: str) -> tuple[str, str] | None:
    """The command's name and arguments, in any case, with or without @botname. None: this is for the agent."""
    match = _COMMAND.fullmatch(text.strip())
    return (match[1].lower(), (match[2] or "").strip()) if match else None


def is_control(text: str) -> bool:
    """Whether a message is for the control lane. Most are no commands, and cost a look at their first character."""
    command = parse(text) if "/" in text[:1] or text[:1].isspace() else None
    return command is not None and command[0] in CONTROL_COMMANDS


def is_control_message(inbound: Inbound) -> bool:
    """Whether a message is for the control lane. One that belongs to no session has nothing to control."""
    return is_control(inbound.text) and not inbound.is_stateless
