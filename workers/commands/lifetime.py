"""Commands about a conversation as a whole: /new, /title."""

from __future__ import annotations

from shared.ids import fresh_id
from shared.owner import owner_of
from shared.store.change import Change
from workers.commands import Command, CommandAnswer, CommandCall, register
from workers.turn.question import with_questions_closed

TITLE_LIMIT = 100


async def new(call: CommandCall) -> CommandAnswer:
    """End this session and begin another. The old one stays on disk, as the parent of the new one; what was asked in it and
    nobody has answered is closed."""
    if call.session.version == 0:
        return CommandAnswer("This is a new conversation already.")
    change = Change(title=None, next_session_id=f"ses_{fresh_id()}", end_reason="session_reset")
    change = await with_questions_closed(change, call.session, call.session_key, call.store.asks)
    return CommandAnswer("A new conversation begins.", change)


async def title(call: CommandCall) -> CommandAnswer:
    if not call.args:
        row = await call.store.sessions.find(call.session_key)
        return CommandAnswer(f"“{row['title']}”" if row and row["title"] else "This conversation has no title yet.")
    wanted = cleaned(call.args)
    if (refusal := await refused(call, wanted, but=call.session.id)) is not None:
        return CommandAnswer(refusal)
    return CommandAnswer(f"This conversation is called “{wanted}” now.", Change(title=wanted))


def cleaned(title: str) -> str:
    """The title in one line that shows as it is."""
    return " ".join("".join(c for c in title if c.isprintable() or c.isspace()).split())


async def refused(call: CommandCall, title: str, *, but: str) -> str | None:
    """Why a conversation cannot be called so, if so: by its title it must be found again."""
    if not title:
        return "That is no title."
    if len(title) > TITLE_LIMIT:
        return f"A title has at most {TITLE_LIMIT} characters; this one has {len(title)}."
    owner = call.session.owner or owner_of(call.key, call.inbound.source)
    if owner is not None and await call.store.owned.called(owner, title, but):
        return f"Another of your conversations is called “{title}” already. Choose another title, or /resume {title}."
    return None


register(Command("new", "begin a new conversation", new, aliases=("reset",)))
register(Command("title", "show or set the title", title, args="[title]"))
