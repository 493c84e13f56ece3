"""Who is talking where. A session key is a value; its text form is typed and escaped, so two conversations never share one."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from shared.errors import Malformed
from shared.escape import bot_text, escape, parse_bot, unescape
from shared.messages import CHAT_TYPES, Source

MAIN = "main"  # the agent that AGENT and LLM describe
ID_LIMIT = 256  # bytes; the longest platform id known is a Matrix room id of 255
TEXT_LIMIT = 2000  # characters of a whole key; PostgreSQL indexes nothing longer than 2,704 bytes
_NAME = re.compile(r"[a-z0-9_][a-z0-9_~-]{0,63}")
_TAGS = ("s", "t", "u", "a")  # scope, thread, user, alternative user id: typed, so a thread 42 is not a user 42


@dataclass(frozen=True)
class SessionKey:
    """A conversation's identity. Two that differ in anything have different texts, and `parse(str(key)) == key`.

    Malformed for ids that no store would keep as they are. `thread`, `user` and the others are None where the key has none.
    """

    agent: str
    platform: str
    account: str
    chat_type: str
    chat: str
    scope: str | None = None
    thread: str | None = None
    user: str | None = None
    user_alt: str | None = None

    @classmethod
    def for_source(
        cls, source: Source, *, agent: str = MAIN, group_per_user: bool = True, thread_per_user: bool = False
    ) -> SessionKey:
        """The key of the conversation that `source` belongs to; Malformed where an id it needs is missing."""
        if not source.chat:
            raise Malformed("the source has no chat id")
        user = user_alt = None
        if source.chat_type != "dm" and is_per_user(source, group_per_user, thread_per_user):
            user, user_alt = (None, source.user_alt) if source.user_alt else (source.user, None)
            if not (user or user_alt) and source.chat_type != "channel":  # a channel speaks with one voice
                raise Malformed("a session per user needs a user id")
        return cls(
            agent=agent,
            platform=source.platform,
            account=source.account,
            chat_type=source.chat_type,
            chat=source.chat,
            scope=source.scope or None,
            thread=source.thread or None,
            user=user or None,
            user_alt=user_alt,
        )

    @classmethod
    def parse(cls, text: str) -> SessionKey:
        """The key whose text form this is; Malformed for anything that `str(key)` could not have given."""
        return _parsed(text)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.agent) or not _NAME.fullmatch(self.platform):
            raise Malformed("agent and platform names are lower-case words")
        if self.chat_type not in CHAT_TYPES:
            raise Malformed(f"no such chat type: {self.chat_type!r:.40}")
        if self.user is not None and self.user_alt is not None:
            raise Malformed("a session key has at most one user id")
        if "" in (self.chat, self.scope, self.thread, self.user, self.user_alt):
            raise Malformed("an id is not empty: what a key lacks is None")
        for id_ in (self.account, self.chat, self.scope, self.thread, self.user, self.user_alt):
            check_id(id_)
        if len(self._text) > TEXT_LIMIT:
            raise Malformed("the ids are too long together")

    def __str__(self) -> str:
        return self._text

    @property
    def source(self) -> Source:
        """Where the conversation takes place, as far as its key says: enough to find its policy, or to tell its chat."""
        return Source(
            self.platform, self.chat, self.chat_type, self.account, self.user, self.user_alt, self.thread, self.scope
        )

    @property
    def place(self) -> str:
        """How the keys of all conversations with this agent in this chat begin, whosever and in whatever thread."""
        return f"{replace(self, thread=None, user=None, user_alt=None)}:"

    @cached_property
    def _text(self) -> str:
        bot = bot_text(self.platform, self.account)
        text = f"agent:{self.agent}:{bot}:{self.chat_type}:{escape(self.chat)}"
        for tag, value in zip(_TAGS, (self.scope, self.thread, self.user, self.user_alt), strict=True):
            if value is not None:
                text += f":{tag}={escape(value)}"
        return text


@lru_cache(maxsize=4096)  # a key is read again for each of its turns; keys never change
def _parsed(text: str) -> SessionKey:
    head, *tail = text.split(":")
    if head != "agent" or len(tail) < 4:
        raise Malformed("not a session key")
    agent, bot, chat_type, chat, *tagged = tail
    platform, account = parse_bot(bot)
    slots: dict[str, str] = {}
    for segment in tagged:
        tag, found, value = segment.partition("=")
        if not found or tag not in _TAGS or tag in slots:
            raise Malformed("not a session key")
        slots[tag] = unescape(value)
    key = SessionKey(
        agent=agent,
        platform=platform,
        account=account,
        chat_type=chat_type,
        chat=unescape(chat),
        scope=slots.get("s"),
        thread=slots.get("t"),
        user=slots.get("u"),
        user_alt=slots.get("a"),
    )
    if str(key) != text:
        raise Malformed("not the canonical form of a session key")
    return key


def like_keys_in(platform: str, chat: str) -> str:
    """An SQL pattern that the keys of all conversations in a chat match, with whatever agent, bot and chat type. Others may
    match too, because % and _ in ids are signs of the pattern: read each key that it finds."""
    return f"agent:%:{platform}%:{escape(chat)}%"


def agent_of(text: str) -> str:
    """The agent's name in the text form of a key, without reading the rest."""
    return text.split(":", 2)[1] if text.startswith("agent:") else ""


def is_per_user(source: Source, group_per_user: bool, thread_per_user: bool) -> bool:
    """Whether each user of a chat has a conversation of their own. Where groups share one, their threads do too."""
    return group_per_user and (thread_per_user or not source.thread)


def check_id(value: str | None) -> None:
    """Malformed unless `value` is an id that every store of ours keeps as it is."""
    if value is None:
        return
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise Malformed("an id is not valid Unicode") from None
    if size > ID_LIMIT:
        raise Malformed(f"an id of {size} bytes is too long")
