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


class AllowList:
    """Whom the settings let talk on a platform. A list, once there is one, decides alone: ALLOW_ALL_USERS does not widen it.

    The lists are read when this is made: for each message anew it takes 8 µs instead of one.
    """

    def __init__(self, settings: Settings, block: ChatSettings, platform: str) -> None:
        has_list = bool(block.allowed_users or settings.allowed_users)
        self._ids = frozenset(settings.allowed_on(platform) if has_list else ())
        self._everybody = EVERYBODY in self._ids if has_list else settings.allow_all_users

    def has(self, source: Source) -> bool:
        """Whether somebody is among them: nobody is who has no id."""
        user, other = source.user, source.user_alt
        if not user and not other:
            return False
        return self._everybody or (bool(user) and user in self._ids) or (bool(other) and other in self._ids)


async def may_still_talk(pipe: Pipeline, source: Source) -> bool:
    """Whether somebody who once talked to the bot may do so now: by the settings, or because they were paired."""
    block = pipe.settings.platform(source.platform)
    if not isinstance(block, ChatSettings) or AllowList(pipe.settings, block, source.platform).has(source):
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
