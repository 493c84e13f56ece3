"""Where something goes that answers nobody: the text forms of targets, read in this one place.

| text           | means                                                     |
|----------------|-----------------------------------------------------------|
| `origin`       | the chat that asked for it; if no chat did, a file         |
| `local`        | a file on this machine                                     |
| `irc`          | the home channel of the platform                           |
| `irc:42`       | a chat                                                     |
| `irc:42:17`    | a thread in it, on platforms that have threads             |
| `irc@work:42`  | the same by another of our bots on the platform            |

Platform names ignore case, ids keep it. A colon in an id is written `%3A`; where a platform has no threads it may stand as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from shared.errors import Malformed
from shared.escape import bot_text, escape, parse_bot, unescape
from shared.platforms import PLATFORMS
from shared.session_key import check_id
from shared.value import value

TARGETS_LIMIT = 20  # of one message


class TargetKind(StrEnum):
    """What a target names."""

    ORIGIN = "origin"
    FILE = "local"
    HOME = "home"
    CHAT = "chat"


@value
class Target:
    """Where to, as somebody wrote it. `str(target)` reads as the same target again."""

    kind: TargetKind
    platform: str = ""
    account: str = ""
    chat: str = ""
    thread: str | None = None

    @classmethod
    def parse(cls, text: str) -> Target:
        """The target that a text names; Malformed says what is wrong with it."""
        text = text.strip()
        if text.lower() in (TargetKind.ORIGIN, TargetKind.FILE):
            return cls(TargetKind(text.lower()))
        head, has_chat, rest = text.partition(":")
        platform, account = parse_bot(head.strip())
        platform = platform.lower()
        if platform not in PLATFORMS:
            raise Malformed(f"there is no platform {platform!r:.40}; take one of {', '.join(PLATFORMS)}")
        check_id(account)
        if not has_chat:
            return cls(TargetKind.HOME, platform, account)
        chat, has_thread, thread = rest.strip(), "", ""
        if PLATFORMS[platform].can_thread:
            chat, has_thread, thread = chat.partition(":")
        chat, thread = _id(chat), _id(thread)
        if not chat or (has_thread and not thread):
            raise Malformed("a target is platform, platform:chat or platform:chat:thread")
        return cls(TargetKind.CHAT, platform, account, chat, thread or None)

    def __str__(self) -> str:
        if self.kind in (TargetKind.ORIGIN, TargetKind.FILE):
            return self.kind.value
        bot = bot_text(self.platform, self.account)
        if self.kind is TargetKind.HOME:
            return bot
        return f"{bot}:{escape(self.chat)}" + (f":{escape(self.thread)}" if self.thread is not None else "")


def _id(text: str) -> str:
    id = unescape(text)
    check_id(id)
    if "\0" in id:
        raise Malformed("an id holds a NUL character")
    return id


def parse_targets(texts: Sequence[str]) -> tuple[Target, ...]:
    """The targets that the texts name, each once. Malformed for one that cannot be read, and for none or too many."""
    targets = tuple(dict.fromkeys(map(Target.parse, texts)))
    if not 0 < len(targets) <= TARGETS_LIMIT:
        raise Malformed(f"there are 1 to {TARGETS_LIMIT} targets")
    return targets
