"""/model: which model answers in this conversation. Only a listed name is kept, never a key or an address."""

from __future__ import annotations

from shared.store.change import Change
from workers.commands import Command, CommandAnswer, CommandCall, register
from workers.side.context import MODEL

_BACK = ("default", "reset")


async def model(call: CommandCall) -> CommandAnswer:
    settings = call.pipe.settings.for_agent(call.key.agent)
    usual, listed = settings.llm.model or settings.agent, settings.llm.models
    if not call.args:
        kept = call.session.facts.get(MODEL, "")
        now = kept if kept in listed else usual
        choice = f" /model <name> switches to one of: {', '.join(listed)}; /model default back." if listed else ""
        return CommandAnswer(f"{now} answers here.{choice}")
    wanted = call.args.strip().lower()
    if wanted in (*_BACK, usual.lower()):
        return CommandAnswer(f"{usual} answers here from now on.", Change(facts={(call.session.id, MODEL): None}))
    name = next((name for name in listed if name.lower() == wanted), None)
    if name is None:
        return CommandAnswer(f"That is not one of the models here: {', '.join((usual, *listed))}.")
    return CommandAnswer(f"{name} answers here from now on.", Change(facts={(call.session.id, MODEL): name}))


register(Command("model", "show or switch the model of this conversation", model, args="[name|default]"))
