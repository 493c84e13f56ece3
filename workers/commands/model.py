"""/model: which model answers in this conversation. Only a listed name is kept, never a key or an address."""

from __future__ import annotations

from shared.store.change import Change
from workers.commands import Answer, Call, Command, register
from workers.side.context import MODEL

_BACK = ("default", "reset")


async def model(call: Call) -> Answer:
    settings = call.pipe.settings.for_agent(call.key.agent)
    usual, listed = settings.llm.model or settings.agent, settings.llm.models
    if not call.args:
        kept = call.session.facts.get(MODEL, "")
        now = kept if kept in listed else usual
        choice = f" /model <name> switches to one of: {', '.join(listed)}; /model default back." if listed else ""
        return Answer(f"{now} answers here.{choice}")
    wanted = call.args.strip().lower()
    if wanted in (*_BACK, usual.lower()):
        return Answer(f"{usual} answers here from now on.", Change(facts={(call.session.id, MODEL): None}))
    name = next((name for name in listed if name.lower() == wanted), None)
    if name is None:
        return Answer(f"That is not one of the models here: {', '.join((usual, *listed))}.")
    return Answer(f"{name} answers here from now on.", Change(facts={(call.session.id, MODEL): name}))


register(Command("model", "show or switch the model of this conversation", model, args="[name|default]"))
