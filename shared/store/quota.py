"""Messages over a quota: recorded as rejected, with what their chat is told, in one transaction. They have no place in their
key's line, so no turn waits for them, and one that comes again is known."""

from __future__ import annotations

from typing import Protocol, TypedDict, Unpack

from shared.codec import storable
from shared.mail import encode_mail
from shared.messages import Inbound, Mail, Reply
from shared.store.database import Database
from shared.store.database.statements import Step, declared
from shared.store.dead import Told, without_names
from shared.store.parts import PartRow, parts_of
from shared.value import value

REASON = "quota"


class TurnedAwayRow(TypedDict):
    """A message that was not let in."""

    id: str
    event_id: str
    platform: str
    session_key: str
    payload: str
    reason: str
    now: int


class QuotaNoticeRow(PartRow):
    """The part that tells a chat of a message that was not let in."""

    id: str
    reason: str


class QuotaSql(Protocol):
    """The statements of quota.sql, with the values that each needs."""

    def quota_reject(self, **row: Unpack[TurnedAwayRow]) -> Step: ...
    def quota_notice(self, **notice: Unpack[QuotaNoticeRow]) -> Step: ...


sql = declared(QuotaSql)


@value
class Turned:
    """A message that was recorded as rejected, and the part that tells its chat, if there is one."""

    told: Told | None


class Quota:
    """Messages that were not let in."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def reject(self, inbound: Inbound, session_key: str, notice: str | None) -> Turned | None:
        """Record the message as rejected, and tell its chat if there is a notice: both or neither. None: the message was
        accepted or recorded before, and nothing was changed."""
        step = sql.quota_reject(
            id=inbound.id,
            event_id=inbound.event_id,
            platform=inbound.source.platform,
            session_key=session_key,
            payload=storable(encode_mail(inbound).decode()),
            reason=REASON,
            now=inbound.received_at,
        )
        if notice is None:
            [rejected] = await self._database.write(step)
            return Turned(None) if rejected else None
        mail = [Mail(0, without_names(inbound))]
        about = {"turn_id": f"quota_{inbound.id}", "session_key": session_key}
        destination, [part] = parts_of(mail, [Reply(notice)], **about, now=inbound.received_at)
        rejected, told = await self._database.write(step, _notice(inbound.id, part))
        if not rejected:
            return None
        return Turned(Told(destination, told[0]["id"]) if told else None)


def _notice(id: str, part: PartRow) -> Step:
    return sql.quota_notice(id=id, reason=REASON, **part)
