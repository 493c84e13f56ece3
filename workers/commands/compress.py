"""/compress: put the older part of the conversation into a summary. Its rows leave the conversation and stay on disk."""

from __future__ import annotations

import asyncio
import re

from shared.errors import PipelineError, Unavailable
from workers.agents.capabilities import wants_context
from workers.commands import Command, CommandAnswer, CommandCall, register
from workers.side import compression as compressing
from workers.side.context import MODEL
from workers.side.questions import OverBudget

_HERE = re.compile(r"here(?:\s+(\d{1,4}))?", re.IGNORECASE)


async def compress(call: CommandCall) -> CommandAnswer:
    """`here N` keeps the last N exchanges as they are; anything else is what the summary should keep in detail."""
    if call.asks is None:
        return CommandAnswer("There is no model here that could summarise. Nothing was changed.")
    if not wants_context(call.asks):  # it would never see the summary
        return CommandAnswer("The agent here takes no summaries. Nothing was changed.")
    here = _HERE.fullmatch(call.args)
    turns, topic = (int(here[1] or 1), "") if here else (None, call.args)
    wish = compressing.CompressionWish(call.session.facts.get(MODEL, ""), turns, topic)
    try:
        async with asyncio.timeout(call.pipe.settings.turn_timeout_seconds):
            done = await compressing.compress(call.pipe, call.session_key, call.session, call.asks, call.budgets, wish)
    except Unavailable:
        raise
    except OverBudget as error:
        return CommandAnswer(f"Not compressed: {error}")
    except TimeoutError:
        return CommandAnswer("⚠ Not compressed: the summary took too long. Nothing was dropped.")
    except PipelineError as error:
        return CommandAnswer(f"⚠ Not compressed: {error}. Nothing was dropped.")
    if done is None:
        return CommandAnswer("No changes: there is nothing here to compress.")
    return CommandAnswer(_report(done), done.change)


def _report(done: compressing.Compressed) -> str:
    (rows_before, rows_after), (tokens_before, tokens_after) = done.rows, done.tokens
    lines = [
        f"Compressed {rows_before} rows to {rows_after}, about {tokens_before:,} tokens to {tokens_after:,}.",
    ]
    if tokens_after > tokens_before:
        lines.append("The summary is denser than the few words it replaces, so it takes more tokens than they did.")
    if done.is_partial:
        lines.append("There was more than fits in one go: /compress again goes on.")
    if done.instead_of:
        lines.append(f"({done.instead_of} did not answer; the usual model wrote the summary.)")
    return "\n".join(lines)


register(Command("compress", "summarise the older part of this conversation", compress, args="[topic | here N]"))
