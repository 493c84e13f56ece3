"""The older gateways' session keys, read. Theirs can mean two things; what does is refused rather than guessed."""

from __future__ import annotations

from itertools import product

from shared.errors import Malformed
from shared.messages import CHAT_TYPES, Source
from shared.session_key import SessionKey, seed_form
from shared.value import value


@value
class Sharing:
    """Who shares a conversation, as Keyturn's settings have it."""

    group_per_user: bool = True
    thread_per_user: bool = False


def read_key(old_key: str, source: Source | None, sharing: Sharing) -> tuple[SessionKey, Source, str | None]:
    """Our key for a conversation of hermes, where it was held, and a note where the next message will not find it.

    Whoever shared a conversation there shares it here: one that belonged to a whole group never becomes one person's.
    """
    agent = _agent(old_key)
    if source is None:
        source = _source_in(old_key)
    ours = (sharing.group_per_user, sharing.thread_per_user)
    for group, thread in (ours, *(flags for flags in product((True, False), repeat=2) if flags != ours)):
        form = seed_form(source, profile=None, group_per_user=group, thread_per_user=thread)
        if form.partition(":")[2].partition(":")[2] == old_key.partition(":")[2].partition(":")[2]:
            break
    else:  # a key of another version: whether it ends with the user says whose it is
        if not old_key and source.chat_type != "dm":
            raise Malformed("nothing says who of the group shared it")
        user = source.user_alt or source.user
        group = thread = user is not None and old_key.endswith(f":{user}")
    if source.chat_type == "dm":
        group, thread = ours
    key = SessionKey.for_source(source, agent=agent, group_per_user=group, thread_per_user=thread)
    return key, source, _note(key, source, sharing)


def _note(key: SessionKey, source: Source, sharing: Sharing) -> str | None:
    if source.chat_type in ("dm", "channel") or (not source.user and not source.user_alt):
        here = None
    else:
        here = sharing.thread_per_user if source.thread else sharing.group_per_user
    is_shared = key.user is None and key.user_alt is None
    if here is not None and here == is_shared:
        name = "THREAD_SESSIONS_PER_USER" if source.thread else "GROUP_SESSIONS_PER_USER"
        return f"it goes on only with {name}={'false' if is_shared else 'true'}"
    return None


def shared_group_note(key: SessionKey, sharing: Sharing) -> str | None:
    """For gateways whose groups always share one conversation."""
    if key.chat_type == "dm" or key.chat_type == "channel":
        return None
    if sharing.thread_per_user if key.thread else sharing.group_per_user:
        return f"it goes on only with {'THREAD' if key.thread else 'GROUP'}_SESSIONS_PER_USER=false"
    return None


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
