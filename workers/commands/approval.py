"""Commands that answer an open question: /approve, /deny, /answer. A pressed button gives the same, with the question's id."""

from __future__ import annotations

from shared.choices import is_ask_id
from workers.commands import Command, CommandAnswer, CommandCall, GivenAnswer, register


async def approve(call: CommandCall) -> GivenAnswer:
    return GivenAnswer(call.args, is_yes=True)


async def deny(call: CommandCall) -> GivenAnswer:
    return GivenAnswer(call.args, is_yes=False)


async def answer(call: CommandCall) -> GivenAnswer | CommandAnswer:
    first, _, words = call.args.partition(" ")
    if words.strip() and (first.isdecimal() or is_ask_id(first)):
        return GivenAnswer(first, words=words.strip())
    if not call.args:
        return CommandAnswer(
            "Please say what you answer: /answer, and the number of the question if there are several."
        )
    return GivenAnswer("", words=call.args)


register(Command("approve", "let me do what I asked for", approve, args="[number]"))
register(Command("deny", "do not let me do what I asked for", deny, args="[number]"))
register(Command("answer", "answer what I asked", answer, args="[number] ANSWER", limit=4096))
