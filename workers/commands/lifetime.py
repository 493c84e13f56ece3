"""Commands about a conversation as a whole: /new, /title."""

from __future__ import annotations

import re

from shared.ids import fresh_id
from shared.store.change import Change
from workers.commands import Answer, Call, Command, register

TITLE_LIMIT = 100


async def new(call: Call) -> Answer:
    """End this session and begin another. The old one stays on disk, as the parent of the new one."""
    if call.session.version == 0:
        return Answer("This is a new conversation already.")
    change = Change(title=None, next_session_id=f"ses_{fresh_id()}", end_reason="session_reset")
    return Answer("A new conversation begins.", change)


async def title(call: Call) -> Answer:
    if not call.args:
        row = await call.store.transcript.find(call.session_key)
        return Answer(f"“{row['title']}”" if row and row["title"] else "This conversation has no title yet.")
    wanted = re.sub(r"\s+", " ", "".join(c for c in call.args if c.isprintable() or c.isspace())).strip()[:TITLE_LIMIT]
    if not wanted:
        return Answer("That is no title.")
    return Answer(f"This conversation is called “{wanted}” now.", Change(title=wanted))


register(Command("new", "begin a new conversation", new, aliases=("reset",)))
register(Command("title", "show or set the title", title, args="[title]"))
