"""Commands about places: /platforms, /sethome."""

from __future__ import annotations

from shared.homes import home_channels, home_fact
from shared.permission import is_admin
from shared.store.change import Change
from workers.commands import Command, CommandAnswer, CommandCall, register


async def platforms(call: CommandCall) -> CommandAnswer:
    """What the bot is connected to. Where each platform's home channel is, admins are told: a chat's id can be a phone number."""
    shown = is_admin(call.pipe.settings, call.inbound.source)
    known = await home_channels(call.pipe.settings, call.store) if shown else {}
    lines = []
    for name in call.pipe.settings.connected:
        home = known.get(name)
        chat = home.address.chat if home is not None else ""
        place = f"{home.name} ({chat})" if home is not None and home.name else chat
        lines.append(f"{name}: home channel {place}" if place else name)
    return CommandAnswer("\n".join(lines))


async def sethome(call: CommandCall) -> CommandAnswer:
    """The chat becomes its platform's home channel: whatever is sent to the platform without naming a chat comes here."""
    source = call.inbound.source
    scoped, value = home_fact(source)
    said = f"This chat is the home channel of {source.platform} now: what is sent to {source.platform} without a chat comes here."
    return CommandAnswer(said, Change(facts={scoped: value}))


register(Command("platforms", "what I am connected to", platforms))
register(Command("sethome", "make this chat the platform's home channel", sethome, admin=True))
