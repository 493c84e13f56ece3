"""/usage: what this conversation, today and all of one's conversations have cost."""

from __future__ import annotations

from shared.clock import now_ms
from shared.owner import owner_of
from shared.store.usage import SpentInAll
from workers.commands import Command, CommandAnswer, CommandCall, register
from workers.side.budget import day_at


async def usage(call: CommandCall) -> CommandAnswer:
    counted = call.store.usage
    spent, last_prompt = await counted.of_session(call.session.id)
    lines = [_line("This conversation", spent)]
    if last_prompt:
        lines.append(f"Last prompt: {last_prompt:,} tokens")
    owner = owner_of(call.key, call.inbound.source)
    if owner is not None:
        today = await counted.of_owner(owner, day_at(now_ms(), call.pipe.settings))
        lines += [_line("Today", today), _line("All of yours", await counted.of_owner(owner))]
    return CommandAnswer("\n".join(lines))


def _line(name: str, spent: SpentInAll) -> str:
    if not spent.requests:
        return f"{name}: nothing yet"
    cached = f", {spent.cache_read:,} from cache" if spent.cache_read else ""
    tokens = f"{spent.total:,} tokens ({spent.input:,} in{cached}, {spent.output:,} out)"
    return f"{name}: {tokens}, {spent.requests:,} requests, {_cost(spent)}"


def _cost(spent: SpentInAll) -> str:
    if spent.cost == "unknown":
        return "cost unknown"
    return f"{'about' if spent.cost == 'estimated' else 'at least'} ${spent.cost_usd:.4f}"


register(Command("usage", "what your conversations have cost", usage))
