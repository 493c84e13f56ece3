"""Which sessions refer to which blobs (shared/blobs). A commit writes its references in its one transaction, so a blob is
referred to as soon as, and only if, a row or a reply says its name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from shared.blobs.address import blob_at
from shared.codec import encode_text
from shared.context.marks import MEDIA, media_of
from shared.messages import Entry, Reply
from shared.store.change import Also, Stamp
from shared.store.database import Database
from shared.store.database.statements import Step, declared


class BlobReferencesSql(Protocol):
    """The statements of blob_references.sql, with the values that each needs."""

    def blob_refer(self, *, digest: str, session_id: str, turn_id: str, now: int) -> Step: ...
    def blob_refer_branch(self, *, branch_id: str, session_id: str, turn_id: str, now: int) -> Step: ...
    def blob_referred(self, *, digests: str) -> Step: ...


sql = declared(BlobReferencesSql)


class BlobReferences:
    """Reads references; commits write them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def unreferred(self, digests: Sequence[str]) -> list[str]:
        """Those of the digests to which nothing refers."""
        if not digests:
            return []
        listed = encode_text([{"digest": digest} for digest in digests])
        [rows] = await self._database.read(sql.blob_referred(digests=listed))
        referred = {row["digest"] for row in rows}
        return [digest for digest in digests if digest not in referred]


def references(entries: Iterable[Entry], replies: Iterable[Reply], stamp: Stamp) -> list[Step]:
    """What a commit with these rows and replies writes, once for each blob."""
    files = [media for entry in entries if MEDIA in entry.data for media in media_of(entry)]
    files += [media for reply in replies for media in reply.media]
    if not files:
        return []
    digests = {blob.digest: None for media in files if (blob := blob_at(media.url)) is not None}
    return [
        sql.blob_refer(digest=digest, session_id=stamp.session_id, turn_id=stamp.turn_id, now=stamp.now)
        for digest in digests
    ]


def branch_references(branch_id: str) -> Also:
    """Let a branch refer to all that its session refers to: a branch has a part of its rows."""
    return lambda stamp: sql.blob_refer_branch(
        branch_id=branch_id, session_id=stamp.session_id, turn_id=stamp.turn_id, now=stamp.now
    )
