"""Pairing: let somebody in by their code, or take that back. Both are in the database when the call returns, and every
producer knows with its next message."""

from __future__ import annotations

from shared import log
from shared.errors import CannotDo, NotFound, Unavailable
from shared.news import News, tell_producers
from shared.pipeline import Pipeline
from shared.platforms import FOR_PROGRAMS, PLATFORMS
from shared.platforms.settings import ChatSettings
from shared.store.pairing import CodeRefusal
from shared.value import value

PAIRABLE = tuple(
    name
    for name, facts in PLATFORMS.items()
    if name not in FOR_PROGRAMS and facts.settings is not None and issubclass(facts.settings, ChatSettings)
)
"""The platforms where people pair, sorted."""


@value
class PairedUser:
    """Somebody who may talk from now on."""

    platform: str
    user: str
    name: str
    state: str = "approved"


@value
class RevokedUser:
    """Somebody whose next message is refused, unless a list of the settings names them. Messages that were accepted before
    are answered."""

    platform: str
    user: str
    state: str = "revoked"


async def approve_code(pipe: Pipeline, platform: str, code: str, *, by: str) -> PairedUser:
    """Let in whoever was told the code. CannotDo for a code that is not valid, and while wrong ones have locked pairing."""
    _check(platform)
    found = await pipe.store.pairings.approve(platform, code, by)
    if found is CodeRefusal.LOCKED:
        raise CannotDo(f"pairing on {platform} is locked for up to an hour: too many wrong codes were given")
    if found is CodeRefusal.WRONG:
        raise CannotDo(f"no valid code of {platform} is like that: it may be mistyped, used, or older than an hour")
    assert not isinstance(found, CodeRefusal)
    await _tell(pipe)
    log.get().info("paired", platform=platform)
    return PairedUser(platform, found.user_id, found.user_name)


async def revoke_user(pipe: Pipeline, platform: str, user: str) -> RevokedUser:
    """Take an approval back; NotFound where there is none."""
    _check(platform)
    if not await pipe.store.pairings.revoke(platform, user):
        raise NotFound(f"nobody with that id was paired on {platform}: see `keyturn pair list`")
    await _tell(pipe)
    log.get().info("pairing revoked", platform=platform)
    return RevokedUser(platform, user)


def _check(platform: str) -> None:
    if platform not in PAIRABLE:
        raise CannotDo(f"nobody pairs on {platform}: choose from {', '.join(PAIRABLE)}")


async def _tell(pipe: Pipeline) -> None:
    """A producer that Redis cannot reach trusts nothing that it remembers."""
    pipe.store.approvals.forget()
    try:
        await tell_producers(pipe, News.PAIRED)
    except Unavailable as error:
        log.get().warning("producers not told", error=str(error))
