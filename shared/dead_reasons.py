"""Why a message or a reply is set aside as a dead letter. mypy lets nobody give another reason."""

from __future__ import annotations

from typing import Literal

MessageReason = Literal["crashed", "error", "mailbox full", "malformed", "provider", "refused", "timeout"]
ReplyReason = Literal["ambiguous", "chat closed", "crashed", "no sender", "refused", "undelivered", "unreachable"]
