"""Whose a session is: the person's who began it or, where several people share it, the chat's. Nobody else finds it.

A person is known by platform, account, workspace and id, so that he finds his sessions from every chat he is in. A shared
session stays with its chat and thread. The text form is typed and escaped, as a session key's is.
"""

from __future__ import annotations

from urllib.parse import quote

from shared.messages import Source
from shared.session_key import SessionKey

_SAFE = "-_.~@+!,;"


def owner_of(key: SessionKey, source: Source) -> str | None:
    """`telegram:u=42` for a person, `telegram:group:-100:t=17` for a shared chat. None: nobody we could tell from others."""
    user, user_alt = key.user, key.user_alt
    if key.chat_type == "dm":  # its key names the chat alone
        user, user_alt = (None, source.user_alt) if source.user_alt else (source.user, None)
        if not user and not user_alt:
            return None
    place = f"{key.platform}@{_escape(key.account)}" if key.account else key.platform
    scope = f":s={_escape(key.scope)}" if key.scope else ""
    if user_alt:
        return f"{place}{scope}:a={_escape(user_alt)}"
    if user:
        return f"{place}{scope}:u={_escape(user)}"
    thread = f":t={_escape(key.thread)}" if key.thread else ""
    return f"{place}{scope}:{key.chat_type}:{_escape(key.chat)}{thread}"


def _escape(value: str) -> str:
    return quote(value, safe=_SAFE)
