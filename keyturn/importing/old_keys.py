"""The older gateways' session keys, read. What a key does not name was shared by all that it leaves out.

A conversation is never given to fewer people than had it. An entry whose key lacks the chat or the thread that its origin
names held others' words too: its origin is only the first of them. It is refused, and so is what can mean two things.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from shared.context.shared_thread import is_shared
from shared.errors import Malformed
from shared.messages import CHAT_TYPES, Source
from shared.routing import Sharing, chat_name
from shared.session_key import SessionKey, is_per_user
from shared.value import value

TERMINAL = "terminal"  # the conversation that `keyturn chat` has unless another is named
_PLATFORMS = {"api_server": "api", "cli": "local", "tui": "local"}  # what Keyturn calls otherwise
_TERMINALS = frozenset({"cli", "direct"})  # how the older gateways name the conversation of a terminal
_SOMEBODY = "somebody"  # stands for the next one who writes in a group
_NOBODYS: Mapping[str, str] = MappingProxyType({})


@value
class OldPlace:
    """Where a conversation was held, in our words."""

    key: SessionKey
    source: Source
    note: str | None = None  # what has to be done so that the next message finds it

    @property
    def needs_sharing(self) -> str | None:
        """The chat as SHARED_CHATS names it, where the conversation goes on only if it is listed there."""
        return chat_name(self.source) if self.note is not None and is_shared(self.key) else None


def read_key(
    old_key: str, source: Source | None, sharing: Sharing, aliases: Mapping[str, str] = _NOBODYS, user: str = "me"
) -> OldPlace:
    """Our place for a conversation of hermes. Malformed where it would have fewer people here than it had there.

    `aliases` are the other numbers of people on WhatsApp, `user` is who sits at this machine's terminal.
    """
    if source is None:
        source = _source_in(old_key)
    per_user = _is_per_user(old_key, source, aliases)
    return place_of(source, sharing, agent=_agent(old_key), per_user=per_user, user=user)


def place_of(
    source: Source, sharing: Sharing, *, agent: str = "main", per_user: bool = False, user: str = "me"
) -> OldPlace:
    """The place of a conversation that each user of its chat had alone, or that all of them shared."""
    source = _in_our_words(source, user)
    key = SessionKey.for_source(source, agent=agent, group_per_user=per_user, thread_per_user=per_user)
    return OldPlace(key, source, _note(key, source, sharing))


def _is_per_user(old_key: str, source: Source, aliases: Mapping[str, str]) -> bool:
    """Whether a key names the user beside the chat."""
    if not old_key:
        if source.chat_type != "dm":
            raise Malformed("nothing says who of the group shared it")
        return False
    named = _ids(old_key)
    for ids, per_user in _forms(source, aliases):
        if ids == named:
            return per_user
    if not named:
        raise Malformed("its key names no chat: it holds the messages of everybody who wrote there")
    if source.thread and named in {ids for ids, _ in _forms(replace(source, thread=None), aliases)}:
        raise Malformed("its key names no thread: it holds the messages of all threads of its chat")
    raise Malformed("its key and its origin name different chats")


def _forms(source: Source, aliases: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    """The ids of the keys that versions of hermes gave to a source, and whether the user is among them."""
    bare = replace(source, scope=None)  # most versions left the workspace out
    verbatim = replace(bare, platform="")  # older ones did not resolve the numbers of WhatsApp
    for one in (source, bare, verbatim):
        for per_user in (False, True):
            form = seed_form(one, group_per_user=per_user, thread_per_user=per_user, aliases=aliases)
            yield _ids(form), per_user


def _ids(key: str) -> str:
    """What follows agent, platform and chat type."""
    return (*key.split(":", 4), "", "", "", "", "")[4]


def _in_our_words(source: Source, user: str) -> Source:
    platform = _PLATFORMS.get(source.platform, source.platform)
    if platform == "local":
        chat = TERMINAL if source.chat in _TERMINALS else source.chat
        return replace(source, platform=platform, chat=chat, user=user)
    return replace(source, platform=platform)


def _note(key: SessionKey, source: Source, sharing: Sharing) -> str | None:
    """What has to be set so that the next message of the chat finds the conversation."""
    has_user = source.user or source.user_alt or source.chat_type == "channel"  # a channel speaks with one voice
    next_source = source if has_user else replace(source, user=_SOMEBODY)
    if sharing.key_of(next_source, key.agent) == key:
        return None
    if is_shared(key):
        return f"it goes on only with {chat_name(source)} in SHARED_CHATS"
    needed = ("GROUP_SESSIONS_PER_USER", "THREAD_SESSIONS_PER_USER") if key.thread else ("GROUP_SESSIONS_PER_USER",)
    return f"it goes on only with {' and '.join(f'{name}=true' for name in needed)}"


def _agent(old_key: str) -> str:
    head, _, rest = old_key.partition(":")
    return rest.partition(":")[0] if head == "agent" and rest else "main"


def _source_in(old_key: str) -> Source:
    """The source that a key without an origin stands for, where it can be only one."""
    head, _, rest = old_key.partition(":")
    parts = rest.split(":")
    if head != "agent" or len(parts) < 4 or parts[2] not in CHAT_TYPES:
        raise Malformed("the entry has no origin, and its key names no chat")
    if len(parts) > 4:
        raise Malformed("the entry has no origin, and its key can be read in two ways")
    return Source(platform=parts[1], chat=parts[3], chat_type=parts[2])


def seed_form(
    source: Source,
    *,
    profile: str | None = None,
    group_per_user: bool = True,
    thread_per_user: bool = False,
    aliases: Mapping[str, str] | None = None,
) -> str:
    """The key that the older gateways gave to `source`. Different conversations can share one.

    `aliases` are the other numbers under which WhatsApp knows a person, as its bridge wrote them down.
    """
    agent = "main" if profile in (None, "", "default") else "main~" if profile == "main" else profile
    scope = source.scope if source.platform == "slack" else None  # a Discord guild was never in the key
    chat, user = source.chat, source.user_alt or source.user
    if source.platform == "whatsapp":
        user = _one_number(user, aliases or {}) if user else user
        chat = _one_number(chat, aliases or {}) if source.chat_type == "dm" else chat
    if source.chat_type == "dm":
        parts = [scope, chat or user, source.thread]
    else:
        per_user = is_per_user(source, group_per_user, thread_per_user)
        parts = [scope, chat, source.thread, user if per_user else None]
    return ":".join([f"agent:{agent}:{source.platform}:{source.chat_type}", *(part for part in parts if part)])


def _one_number(jid: str, aliases: Mapping[str, str]) -> str:
    """WhatsApp names one person by several jids; the older gateway kept the shortest number that it knew."""
    known: list[str] = []
    number: str | None = _bare(jid)
    while number and number not in known:
        known.append(number)
        number = _bare(aliases.get(number, ""))
    return min(known, key=lambda alias: (len(alias), alias), default="")


def _bare(jid: str) -> str:
    """The number in `+number:device@server`."""
    return jid.removeprefix("+").partition("@")[0].partition(":")[0]
