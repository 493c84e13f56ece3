"""Who may talk: nobody, until the settings say so. The same rules for every platform where people write.

A user is known by an id that they cannot choose or change, and it must equal a listed one, character for character: names,
handles and ids with something put before or after them open no door.
"""

from __future__ import annotations

from enum import StrEnum

from shared.messages import Inbound, Source
from shared.permission import AllowList
from shared.platforms.settings import ChatSettings


class Verdict(StrEnum):
    """Whether a message enters. Only ADMITTED becomes an inbound."""

    ADMITTED = "admitted"
    STRANGER = "stranger"  # not on a list
    UNADDRESSED = "unaddressed"  # said in a group, and not to us; producers/pieces.py may know better


def judge(inbound: Inbound, block: ChatSettings, listed: AllowList) -> Verdict:
    """Whether a message is for us and from somebody who may talk to us here."""
    if needs_mention(inbound.source, block) and not inbound.mentioned:
        return Verdict.UNADDRESSED
    return Verdict.ADMITTED if listed.has(inbound.source) else Verdict.STRANGER


def needs_mention(source: Source, block: ChatSettings) -> bool:
    """Whether what is said there counts only if it is said to us."""
    return source.chat_type != "dm" and block.require_mention and source.chat not in block.free_chats
