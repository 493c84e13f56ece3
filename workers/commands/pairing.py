"""/pair: an admin lets strangers of this platform in by their code, or takes that back."""

from __future__ import annotations

from shared.errors import CannotDo
from shared.operating.pairing import approve_code, revoke_user
from shared.reading.pairing import paired_people
from workers.commands import Command, CommandAnswer, CommandCall, register

SHOWN = 20
USAGE = "Say /pair list, /pair approve CODE or /pair revoke USER."


async def pair(call: CommandCall) -> CommandAnswer:
    """Works on the platform that it is said on."""
    what, _, argument = call.args.partition(" ")
    source = call.inbound.source
    argument = argument.strip()
    try:
        if what == "list" and not argument:
            return await _list(call)
        if what == "approve" and argument:
            by = f"{source.platform}:{source.user or source.user_alt}"
            paired = await approve_code(call.pipe, source.platform, argument, by=by)
            return CommandAnswer(f"{paired.user} ({paired.name or 'no name'}) may talk to me now.")
        if what == "revoke" and argument:
            revoked = await revoke_user(call.pipe, source.platform, argument)
            return CommandAnswer(f"{revoked.user} may no longer talk to me.")
    except CannotDo as error:
        return CommandAnswer(f"That did not work: {error}.")
    return CommandAnswer(USAGE)


async def _list(call: CommandCall) -> CommandAnswer:
    people = await paired_people(call.store, SHOWN, call.inbound.source.platform)
    waiting = [f"waiting: {each.user} ({each.name or 'no name'})" for each in people.requests]
    approved = [f"may talk: {each.user} ({each.name or 'no name'})" for each in people.approved]
    return CommandAnswer("\n".join([*waiting, *approved]) or "Nobody was paired here, and nobody waits.")


register(Command("pair", "let strangers in by their code", pair, args="list | approve CODE | revoke USER", admin=True))
