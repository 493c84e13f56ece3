"""Commands that answer an open question: /approve, /deny."""

from __future__ import annotations

from workers.commands import Command, CommandCall, GivenAnswer, register


async def approve(call: CommandCall) -> GivenAnswer:
    return GivenAnswer(is_yes=True, which=call.args)


async def deny(call: CommandCall) -> GivenAnswer:
    return GivenAnswer(is_yes=False, which=call.args)


register(Command("approve", "let me do what I asked for", approve, args="[number]"))
register(Command("deny", "do not let me do what I asked for", deny, args="[number]"))
