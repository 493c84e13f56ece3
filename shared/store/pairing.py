"""Pairing: people who asked for a code, and people who were let in by one. Tables paired, pairing_requests, pairing_locks.

A code is kept as a salted hash. The part that tells it to its person is in the outbox until the code was used or is replaced
by a later request on the platform. A request and its part are written in one transaction, as are an approval and the end of
its request: after a crash there are both or neither.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from datetime import timedelta
from enum import Enum
from typing import Protocol, TypedDict, Unpack

from shared.store.database import Database, Row
from shared.store.database.statements import Step, declared
from shared.store.dead import Told
from shared.store.pairing_code import Code, digest_of, turn_id_of
from shared.store.parts import PartRow
from shared.value import value

LIFETIME = timedelta(hours=1)
PAUSE = timedelta(minutes=10)  # between two codes for one person
MOST_OPEN = 3  # codes of a platform at a time
MOST_KEPT = 100  # requests of a platform at a time, with those that got no code
MOST_WRONG = 5
LOCK = timedelta(hours=1)  # after so many wrong codes


class CodeAnswer(Enum):
    """What becomes of a request for a code."""

    CODE = "code"
    LATER = "later"  # too many codes are open: the person is told once
    SILENCE = "silence"  # asked not long ago, or nothing is given out at the moment


@value
class PairingPerson:
    """Somebody on a platform, by the ids that they cannot choose."""

    platform: str
    user_id: str
    user_alt: str | None = None
    user_name: str = ""


@value
class Approved:
    """Whom a code let in."""

    user_id: str
    user_name: str


class CodeRefusal(Enum):
    """Why a code lets nobody in."""

    WRONG = "wrong"
    LOCKED = "locked"  # too many wrong codes: not even valid ones are taken


class Ids(TypedDict):
    """The ids of a person, as the statements want them."""

    platform: str
    user_id: str
    user_alt: str | None


class RequestRow(TypedDict):
    """A row of table pairing_requests, and the limits that it is written within."""

    platform: str
    user_id: str
    user_alt: str | None
    user_name: str
    salt: str
    digest: str
    most_open: int
    most_kept: int


class PairingNoticeRow(TypedDict):
    """The part that tells a person: `payload` with the code, or `payload_later`."""

    idempotency_key: str
    turn_id: str
    ordinal: int
    conversation: str
    destination: str
    platform: str
    payload: str
    payload_later: str
    now: int
    user_id: str
    salt: str


class PairingSql(Protocol):
    """The statements of pairing.sql, with the values that each needs."""

    def pairing_serialise(self, *, platform: str) -> Step: ...
    def pairing_hide(self, *, platform: str, lifetime_ms: int) -> Step: ...
    def pairing_prune(self, *, platform: str, lifetime_ms: int) -> Step: ...
    def pairing_again(self, *, platform: str, user_id: str, user_alt: str | None, pause_ms: int) -> Step: ...
    def pairing_ask(self, **request: Unpack[RequestRow]) -> Step: ...
    def pairing_notice(self, **notice: Unpack[PairingNoticeRow]) -> Step: ...
    def pairing_open(self, *, platform: str, lifetime_ms: int) -> Step: ...
    def pairing_locked(self, *, platform: str) -> Step: ...
    def pairing_wrong(self, *, platform: str, most_wrong: int, lock_ms: int) -> Step: ...
    def pairing_replace(self, *, platform: str, user_id: str, user_alt: str | None, salt: str) -> Step: ...
    def pairing_approve(self, *, platform: str, salt: str, lifetime_ms: int, approved_by: str) -> Step: ...
    def pairing_used(self, *, platform: str, salt: str) -> Step: ...
    def pairing_right(self, *, platform: str) -> Step: ...
    def pairing_told(self, *, turn_id: str) -> Step: ...
    def pairing_revoke(self, *, platform: str, user_id: str) -> Step: ...
    def paired_one(self, *, platform: str, user_id: str, user_alt: str | None) -> Step: ...
    def paired_list(self, *, platform: str, limit: int) -> Step: ...
    def pairing_list(self, *, platform: str, limit: int, lifetime_ms: int) -> Step: ...


sql = declared(PairingSql)


class Pairings:
    """Who asked for a code and who was let in. What a method has written when it returns survives a crash."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def ask(
        self, person: PairingPerson, code: Code, part: PartRow, later: PartRow
    ) -> tuple[CodeAnswer, Told | None]:
        """Record that somebody asked, and put out `part`, which tells the code, or `later`; or neither. All or nothing."""
        ids: Ids = {"platform": person.platform, "user_id": person.user_id, "user_alt": person.user_alt}
        notice: PairingNoticeRow = _notice(part, later, person, code)
        request: RequestRow = {
            **ids,
            "user_name": person.user_name,
            "salt": code.salt,
            "digest": code.digest,
            "most_open": MOST_OPEN,
            "most_kept": MOST_KEPT,
        }
        *_, asked, told = await self._database.write(
            sql.pairing_serialise(platform=person.platform),
            sql.pairing_hide(platform=person.platform, lifetime_ms=_ms(LIFETIME)),
            sql.pairing_prune(platform=person.platform, lifetime_ms=_ms(LIFETIME)),
            sql.pairing_again(**ids, pause_ms=_ms(PAUSE)),
            sql.pairing_ask(**request),
            sql.pairing_notice(**notice),
        )
        if not asked:
            return CodeAnswer.SILENCE, None
        answered = CodeAnswer.CODE if asked[0]["digest"] else CodeAnswer.LATER
        return answered, Told(part["destination"], told[0]["id"]) if told else None

    async def approve(self, platform: str, code: str, by: str) -> Approved | CodeRefusal:
        """Let in whoever was told this code, in any case and padded. It works once, whoever else approves it just now.

        Several wrong codes lock the platform's pairing, for valid codes too.
        """
        locked, requests = await self._database.read(
            sql.pairing_locked(platform=platform), sql.pairing_open(platform=platform, lifetime_ms=_ms(LIFETIME))
        )
        if locked:
            return CodeRefusal.LOCKED
        found = _matching(requests, code.strip().upper())
        if found is None:
            await self._database.write(sql.pairing_wrong(platform=platform, most_wrong=MOST_WRONG, lock_ms=_ms(LOCK)))
            return CodeRefusal.WRONG
        salt = found["salt"]
        ids: Ids = {"platform": platform, "user_id": found["user_id"], "user_alt": found["user_alt"]}
        _, _, approved, *_ = await self._database.write(
            sql.pairing_serialise(platform=platform),
            sql.pairing_replace(**ids, salt=salt),
            sql.pairing_approve(platform=platform, salt=salt, lifetime_ms=_ms(LIFETIME), approved_by=by),
            sql.pairing_used(platform=platform, salt=salt),
            sql.pairing_right(platform=platform),
            sql.pairing_told(turn_id=turn_id_of(salt)),
        )
        return Approved(**approved[0]) if approved else CodeRefusal.WRONG

    async def revoke(self, platform: str, user_id: str) -> bool:
        """Take somebody's approval back, by any of their ids. False: they had none."""
        [rows] = await self._database.write(sql.pairing_revoke(platform=platform, user_id=user_id))
        return bool(rows)

    async def is_approved(self, person: PairingPerson) -> bool:
        """Whether a person was let in. Reads the database."""
        [rows] = await self._database.read(
            sql.paired_one(platform=person.platform, user_id=person.user_id, user_alt=person.user_alt)
        )
        return bool(rows)

    async def approved(self, limit: int, platform: str = "") -> list[Row]:
        """The people who were let in on a platform, or on all, newest first."""
        [rows] = await self._database.read(sql.paired_list(platform=platform, limit=limit))
        return rows

    async def requests(self, limit: int, platform: str = "") -> list[Row]:
        """The people who have a valid code, oldest first, without their codes."""
        [rows] = await self._database.read(sql.pairing_list(platform=platform, limit=limit, lifetime_ms=_ms(LIFETIME)))
        return rows


def _matching(requests: Sequence[Row], code: str) -> Row | None:
    """The request with this code. Every row is compared, and rows that hold no hash match nothing."""
    matches = [
        row for row in requests if hmac.compare_digest(digest_of(row["salt"], code).encode(), row["digest"].encode())
    ]
    return matches[0] if matches else None


def _notice(part: PartRow, later: PartRow, person: PairingPerson, code: Code) -> PairingNoticeRow:
    return {
        "idempotency_key": part["idempotency_key"],
        "turn_id": part["turn_id"],
        "ordinal": part["ordinal"],
        "conversation": part["conversation"],
        "destination": part["destination"],
        "platform": part["platform"],
        "payload": part["payload"],
        "payload_later": later["payload"],
        "now": part["now"],
        "user_id": person.user_id,
        "salt": code.salt,
    }


def _ms(duration: timedelta) -> int:
    return int(duration.total_seconds() * 1000)
