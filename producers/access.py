"""Who may talk: nobody, until the settings say so. The same rules for every platform where people write.

A user is known by an id that they cannot choose or change, and it must equal a listed one, character for character: names,
handles and ids with something put before or after them open no door.
"""

from __future__ import annotations

from enum import StrEnum

from shared.messages import Inbound
from shared.permission import is_listed
from shared.platforms.settings import ChatSettings
from shared.settings import Settings


class Verdict(StrEnum):
    """Whether a message enters. Only ADMITTED becomes an inbound."""

    ADMITTED = "admitted"
    STRANGER = "stranger"  # not on a list
    UNADDRESSED = "unaddressed"  # said in a group, and not to us


def judge(inbound: Inbound, block: ChatSettings, settings: Settings) -> Verdict:
    """Whether a message is for us and from somebody who may talk to us here."""
    if not _addressed(inbound, block):
        return Verdict.UNADDRESSED
    return Verdict.ADMITTED if is_listed(settings, block, inbound.source) else Verdict.STRANGER


def _addressed(inbound: Inbound, block: ChatSettings) -> bool:
    source = inbound.source
    return source.chat_type == "dm" or inbound.mentioned or not block.require_mention or source.chat in block.free_chats
