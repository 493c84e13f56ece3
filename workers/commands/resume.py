"""Commands that move between conversations: /resume, /sessions, /branch. Nobody is shown or given what is another's."""

from __future__ import annotations

from shared.clock import iso, now_ms
from shared.ids import fresh_id
from shared.lane.session_lock import JOINED, joined
from shared.owner import owner_of
from shared.permission import is_admin
from shared.store.branches import branch_into, reopen
from shared.store.change import Change
from shared.store.database import Row
from shared.store.owned import Listed
from workers.commands import Command, CommandAnswer, CommandCall, number, register
from workers.commands.lifetime import cleaned, refused
from workers.turn.lifetime import RESUMED

LISTED = 10
FOUND = 50
PREVIEW = 60
NOBODY = "I cannot tell who you are here, so I know of no conversations of yours."
# Of the facts, all that a copy takes along; and only if it holds all they tell of.
INHERITED = ("summary", "consolidated")


async def resume(call: CommandCall) -> CommandAnswer:
    """Go on with an earlier conversation of the same owner. This one ends, unless another key is in it."""
    owner = _caller(call)
    if owner is None:
        return CommandAnswer(NOBODY)
    listed = await call.store.owned.newest(owner, limit=LISTED, but=call.session.id, titled=True, place=_place(call))
    if not _bare(call.args):
        return CommandAnswer(_menu(listed))
    target = await _meant(call, owner, listed)
    if target is None:
        name = _bare(call.args)
        if number(name) is not None:
            return CommandAnswer(f"There is no number {name[:20]}: the list has {len(listed)}. Send /resume to see it.")
        return CommandAnswer(
            f"I know no conversation “{name[:PREVIEW]}” of yours. Send /resume for those with a title."
        )
    called = f"“{target['title']}”" if target["title"] else target["id"]
    if target["id"] == call.session.id:
        return CommandAnswer(f"You are in {called} already.")
    here = f"{JOINED}{call.session_key}"
    facts: dict[tuple[str, str], str | None] = {(target["id"], here): "1", (target["id"], RESUMED): str(now_ms())}
    first = target["session_key"]  # the key that began it may still be there, and then it has to know
    route = await call.store.journal.route(first) if first != call.session_key else None
    if route is not None and route["session_id"] == target["id"]:
        facts[target["id"], f"{JOINED}{first}"] = "1"
    change = Change(
        switch_to=target["id"],
        end_reason=None if joined(call.session.facts, call.session_key) else "session_switch",
        facts=facts,
        also=(reopen(target["id"]),),
    )
    return CommandAnswer(f"Back in {called}, with {target['rows_active']} rows.", change)


async def sessions(call: CommandCall) -> CommandAnswer:
    """The caller's own conversations, or those whose title has some words in it. For an admin also everybody's."""
    owner = _caller(call)
    if owner is None:
        return CommandAnswer(NOBODY)
    words = call.args.split()
    everybody = bool(words) and words[0].lower() == "all"
    words = words[1:] if everybody else words
    everybody = everybody and is_admin(call.pipe.settings, call.inbound.source)
    if (words and words[0].lower() != "search") or words == ["search"]:
        return CommandAnswer("Use /sessions, or /sessions search <words of a title>.")
    query = " ".join(words[1:])
    limit = FOUND if query else LISTED
    if everybody:
        found = await call.store.owned.everybodys(limit=limit, search=query, place=_place(call))
    else:
        found = await call.store.owned.newest(owner, limit=limit, search=query, place=_place(call))
    if not found:
        return CommandAnswer(
            f"No title of yours has “{query[:PREVIEW]}” in it." if query else "You have no conversations yet."
        )
    return CommandAnswer("\n".join(f"{_line(row, call.session.id)} · {row.id}" for row in found))


async def branch(call: CommandCall) -> CommandAnswer:
    """Go on in a copy of this conversation: of all of it, or up to the user's n-th message. The original stays."""
    session = call.session
    title, upto = call.args, session.message_count
    if (wanted := number(call.args)) is not None:
        title = ""
        spoken, cut = await call.store.owned.spoken(session.id, max(wanted, 0))
        if not 0 <= wanted <= spoken:
            return CommandAnswer(f"There is nothing to branch there: you have spoken {spoken} times.")
        upto = cut - 1 if cut is not None else upto
    if session.version == 0:
        return CommandAnswer("There is nothing to branch from yet.")
    if title:
        title = cleaned(title)
        if (refusal := await refused(call, title, but="")) is not None:
            return CommandAnswer(refusal)
    id = f"ses_{fresh_id()}"
    told = int(session.facts.get("consolidated", "0"))
    change = Change(
        switch_to=id,
        facts={(id, name): session.facts[name] for name in INHERITED if told <= upto and name in session.facts},
        also=branch_into(id, upto, title or None, session.owner),
    )
    return CommandAnswer(
        "You are in a copy of this conversation now. /resume takes you back if it has a title.", change
    )


def _caller(call: CommandCall) -> str | None:
    return owner_of(call.key, call.inbound.source)


def _place(call: CommandCall) -> str:
    """Where others read along, only what was said in this chat is listed; to oneself, everything."""
    here = call.key
    return "" if here.chat_type == "dm" else here.place


async def _meant(call: CommandCall, owner: str, listed: list[Listed]) -> Row | None:
    """The conversation that somebody means: by its number in the list, its id, its title, or a line of /sessions."""
    name, bare = call.args.strip(), _bare(call.args)
    if (n := number(bare)) is not None and 1 <= n <= len(listed):
        return await call.store.owned.find(owner, listed[n - 1].id)
    for wanted in dict.fromkeys((name, bare, name.rpartition(" · ")[2])):
        if wanted and (found := await call.store.owned.find(owner, wanted)) is not None:
            return found
    for row in await call.store.owned.newest(owner, limit=FOUND, place=_place(call)):
        if _words(row) in (name, bare):
            return await call.store.owned.find(owner, row.id)
    return None


def _bare(args: str) -> str:
    """A name as people copy it: out of brackets and quotes."""
    return args.strip().strip("<>[]\"'“”„«»`").strip()


def _menu(listed: list[Listed]) -> str:
    if not listed:
        return "None of your conversations has a title yet. Give one with /title, and it can be resumed by it."
    lines = [f"{n}. {_line(row, '')}" for n, row in enumerate(listed, 1)]
    return "\n".join([*lines, "Send /resume and a number, a title or an id."])


def _line(row: Listed, current: str) -> str:
    at = iso(row.updated_at)[:16].replace("T", " ")
    return f"{_words(row)} ({at}{', here' if row.id == current else ''})"


def _words(row: Listed) -> str:
    """What a list calls a conversation; /resume knows it by that too."""
    words = " ".join((row.title or row.preview or "").split())
    return (words if len(words) <= PREVIEW else words[: PREVIEW - 1] + "…") or "untitled"


register(Command("resume", "go on with an earlier conversation", resume, args="[number, title or id]"))
register(Command("sessions", "your conversations", sessions, args="[search words]"))
register(Command("branch", "go on in a copy", branch, aliases=("fork",), args="[title, or how many messages to keep]"))
