"""What somebody may do beyond talking, and whether they may still talk: asked when something runs on their behalf later."""

from __future__ import annotations

from collections.abc import Iterable

from shared.messages import Source
from shared.pipeline import Pipeline
from shared.platforms import facts_of
from shared.platforms.settings import ChatSettings
from shared.setting_values import EVERYBODY
from shared.settings import Settings
from shared.store.pairing import PairingPerson
from shared.targets import Target, TargetKind


def is_admin(settings: Settings, source: Source) -> bool:
    """Whether somebody may do what changes something for others. Known by an id that must equal a listed one; where whoever
    writes owns the machine, everybody is one."""
    if facts_of(source.platform).users_are_admins:
        return True
    return bool(settings.admins_on(source.platform) & _ids(source))


def is_listed(settings: Settings, block: ChatSettings, source: Source) -> bool:
    """Whether the settings let somebody talk. A list, once there is one, decides alone: ALLOW_ALL_USERS does not widen it."""
    if not _ids(source):
        return False
    if not block.allowed_users and not settings.allowed_users:
        return settings.allow_all_users
    return bool(settings.allowed_on(source.platform) & {*_ids(source), EVERYBODY})


async def may_still_talk(pipe: Pipeline, source: Source) -> bool:
    """Whether somebody who once talked to the bot may do so now: by the settings, or because they were paired."""
    block = pipe.settings.platform(source.platform)
    if not isinstance(block, ChatSettings) or is_listed(pipe.settings, block, source):
        return True
    ids = [id for id in (source.user, source.user_alt) if id]
    if not ids:
        return False
    person = PairingPerson(source.platform, ids[0], ids[1] if len(ids) > 1 else None)
    return await pipe.store.pairings.is_approved(person)


def beyond_reach(settings: Settings, source: Source, targets: Iterable[Target]) -> tuple[Target, ...]:
    """The targets that somebody may not send to: an admin may send everywhere, others to their own chat and to a file."""
    if is_admin(settings, source):
        return ()
    return tuple(target for target in targets if target.kind not in (TargetKind.ORIGIN, TargetKind.FILE))


def _ids(source: Source) -> set[str]:
    return {id for id in (source.user, source.user_alt) if id}
