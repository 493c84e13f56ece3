"""Commands about places: /platforms, /sethome."""

from __future__ import annotations

from shared.store.change import Change
from workers.commands import Answer, Call, Command, register
from workers.side.context import home_fact, homes


async def platforms(call: Call) -> Answer:
    """What the bot is connected to, and where each platform's home channel is."""
    known = {home.platform: home for home in await homes(call.pipe.settings, call.store)}
    lines = []
    for name in call.pipe.settings.connected:
        home = known.get(name)
        place = (
            f"{home.name} ({home.chat})" if home is not None and home.name else home.chat if home is not None else ""
        )
        lines.append(f"{name}: home channel {place}" if place else name)
    return Answer("\n".join(lines))


async def sethome(call: Call) -> Answer:
    """The chat is listed as its platform's own, for people and for models. Nothing is sent to it unasked."""
    source = call.inbound.source
    scoped, value = home_fact(source)
    said = f"This chat is listed as the home channel of {source.platform} now. Nothing is sent to it unasked yet."
    return Answer(said, Change(facts={scoped: value}))


register(Command("platforms", "what I am connected to", platforms))
register(Command("sethome", "list this chat as the platform's home channel", sethome, admin=True))
