"""What the settings say about each platform: whether it works as far as it is set, and whether anybody may talk there. And
what the platform itself says: whether it takes our credentials, and where it sends messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from keyturn.cli.doctor.finding import Finding, Level, warn
from producers.connecting import connect_of, examined
from shared.platforms import CONNECTING
from shared.platforms.settings import ChatSettings, PlatformSettings
from shared.settings import PREFIX, Settings


def check_platforms(settings: Settings) -> Iterator[Finding]:
    for block in settings.blocks:
        yield from block.findings()
        if not block.on and block.enabled is not False and block.model_fields_set:
            yield _off(block)
        if isinstance(block, ChatSettings) and block.on and not _lets_in_anybody(block, settings):
            yield _empty(block, settings)


async def ask_platforms(settings: Settings) -> list[Finding]:
    """What every platform that is on says when it is asked, by the check of `keyturn connect`. Changes nothing there."""
    blocks = {name: block for name in CONNECTING if (block := settings.platform(name)) is not None and block.on}
    found = await asyncio.gather(*(_ask(name, block) for name, block in blocks.items()))
    return [finding for findings in found for finding in findings]


async def _ask(name: str, block: PlatformSettings) -> list[Finding]:
    part = connect_of(name)
    found = await examined(name, part.check(block))
    if any(finding.level is Level.FAIL for finding in found):
        return found  # what else it would say follows from that
    return [*found, *await examined(name, part.check_reception(block))]


def _off(block: PlatformSettings) -> Finding:
    given = [f"{block.PREFIX}__{name.upper()}" for name in sorted(block.model_fields_set)]
    there = f"{' and '.join(given)} {'is' if len(given) == 1 else 'are'} set"
    return warn(block.PREFIX.lower(), f"is off, although {there}", f"set {block.needed}")


def _lets_in_anybody(block: ChatSettings, settings: Settings) -> bool:
    """As producers/access.py decides; people who were paired come in all the same."""
    if not block.allowed_users and not settings.allowed_users:
        return settings.allow_all_users
    return bool(settings.allowed_on(block.PREFIX.lower()))


def _empty(block: ChatSettings, settings: Settings) -> Finding:
    name = block.PREFIX.lower()
    fix = f"list user ids in {PREFIX}{block.PREFIX}__ALLOWED_USERS; the log shows the id of whoever is turned away"
    if block.pairing if block.pairing is not None else settings.pairing:
        fix += f". Or write to the bot, and approve its code with `keyturn pair approve {name} CODE`"
    return warn(name, "nobody may talk to this bot, except people who were paired", fix)
