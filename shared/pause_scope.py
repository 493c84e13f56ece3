"""What a pause holds, as a value: everything, a lane, a platform, a chat or one conversation.

| scope        | text                     | holds                                                |
|--------------|--------------------------|------------------------------------------------------|
| everything   | `all`                    | all turns and deliveries                             |
| lane         | `lane:turns`             | the keys of that lane                                |
| platform     | `platform:irc`           | turns and deliveries of that platform                |
| chat         | `to:irc:42`              | turns of all conversations there, and its deliveries |
| conversation | `agent:main:irc:dm:42`   | its turns                                            |

Control messages (/stop, /status) are held by `lane:control` alone. shared/lane/pause_of.lua reads the same texts.
"""

from __future__ import annotations

from enum import StrEnum

from shared.errors import CannotDo, Malformed
from shared.lane_key import CONTROL, DELIVERIES, TURNS, Destination, LaneKey, parse_key
from shared.platforms import PLATFORMS
from shared.session_key import SessionKey
from shared.value import value

LANES = (TURNS, DELIVERIES, CONTROL)
EXAMPLES = "all, lane:turns, platform:NAME, a chat (to:…) or a conversation (agent:…)"


class ScopeKind(StrEnum):
    """How much a pause holds."""

    ALL = "all"
    LANE = "lane"
    PLATFORM = "platform"
    CHAT = "chat"
    CONVERSATION = "conversation"


@value
class PauseScope:
    """What a pause holds. Two scopes that differ have different texts."""

    kind: ScopeKind
    text: str

    @property
    def name(self) -> str:
        """What is paused, without the word for its kind: the lane's or the platform's name, or the key."""
        return self.text.partition(":")[2] if self.kind in (ScopeKind.LANE, ScopeKind.PLATFORM) else self.text


def parse_scope(text: str) -> PauseScope:
    """The scope that an operator wrote; CannotDo for anything that could never hold a key."""
    if text == ScopeKind.ALL:
        return PauseScope(ScopeKind.ALL, text)
    head, _, name = text.partition(":")
    if head == ScopeKind.LANE and name in LANES:
        return PauseScope(ScopeKind.LANE, text)
    if head == ScopeKind.PLATFORM and name in PLATFORMS:
        return PauseScope(ScopeKind.PLATFORM, text)
    key: LaneKey | None
    try:
        key = parse_key(text)
    except Malformed:
        key = None
    if isinstance(key, SessionKey):
        return PauseScope(ScopeKind.CONVERSATION, text)
    if isinstance(key, Destination):
        return PauseScope(ScopeKind.CHAT, text)
    known = {"lane": LANES, "platform": PLATFORMS}.get(head)
    if known is not None:
        raise CannotDo(f"there is no {head} {name!r:.80}; take one of {', '.join(sorted(known))}")
    raise CannotDo(f"{text!r:.80} cannot be paused: write {EXAMPLES}")


def stored_scope(text: str) -> PauseScope:
    """The scope of a pause that is in force, also of one that only a newer version knows."""
    try:
        return parse_scope(text)
    except CannotDo:
        return PauseScope(ScopeKind.PLATFORM, text)


def chat_of(key: SessionKey) -> PauseScope:
    """The chat in which a conversation takes place."""
    return PauseScope(ScopeKind.CHAT, str(Destination(key.platform, key.account, key.chat)))


def platform_scope(platform: str) -> PauseScope:
    return PauseScope(ScopeKind.PLATFORM, f"{ScopeKind.PLATFORM}:{platform}")
