"""Whose a session is: the person's who began it or, where several people share it, the chat's. Nobody else finds it.

A person is known by platform, account, workspace and id, so that they find their sessions from every chat they are in. A
shared session stays with its chat and thread. The text form is typed and escaped, as a session key's is.
"""

from __future__ import annotations

from shared.escape import bot_text, escape
from shared.messages import Source
from shared.session_key import SessionKey


def owner_of(key: SessionKey, source: Source) -> str | None:
    """`<platform>:u=42` for a person, `<platform>:group:-100:t=17` for a shared chat. None: nobody we could tell from others."""
    user, user_alt = key.user, key.user_alt
    if key.chat_type == "dm":  # its key names the chat alone
        user, user_alt = (None, source.user_alt) if source.user_alt else (source.user, None)
        if not user and not user_alt:
            return None
    bot = bot_text(key.platform, key.account)
    scope = f":s={escape(key.scope)}" if key.scope else ""
    if user_alt:
        return f"{bot}{scope}:a={escape(user_alt)}"
    if user:
        return f"{bot}{scope}:u={escape(user)}"
    thread = f":t={escape(key.thread)}" if key.thread else ""
    return f"{bot}{scope}:{key.chat_type}:{escape(key.chat)}{thread}"
