"""/search: where something was said. One finds one's own sessions only and, where others read along, only this chat's."""

from __future__ import annotations

from shared.clock import iso
from shared.owner import owner_of
from shared.store.search import Hit
from workers.commands import Command, CommandAnswer, CommandCall, register
from workers.side.said_before import said_before

USAGE = 'Say what to look for: /search words, or /search "exact words".'
MORE = "There may be more: not everything could be looked at."


async def search(call: CommandCall) -> CommandAnswer:
    here = call.key
    owner = owner_of(here, call.inbound.source)
    if owner is None:
        return CommandAnswer("I do not know who you are, so I cannot search what you said.")

    found = await said_before(call.store, here, owner, call.args)
    if found is None:
        return CommandAnswer(USAGE)
    lines = [_line(n, hit, call.session.id) for n, hit in enumerate(found.hits, 1)] or ["Nothing found."]
    return CommandAnswer("\n\n".join(lines if found.complete else [*lines, MORE]))


def _line(n: int, hit: Hit, current: str) -> str:
    day = iso(hit.said_at)[:10]
    name = f"“{hit.title}”, {day}" if hit.title else day
    others = f" (and {hit.rows - 1} more)" if hit.rows > 1 else ""
    way = "this conversation" if hit.session_id == current else f"/resume {hit.session_id}"
    return f"{n}. {name}: {hit.snippet}{others}\n{way}"


register(Command("search", "find what was said in your conversations", search, args="words"))
