"""The memory of an older gateway: notes that every conversation was shown there. Here notes belong to a person.

If one person wrote to it in private, beside whoever sits at the terminal, the notes are theirs. If several did, nothing says
whom a note is about, and it is given to nobody unless somebody says whose it is. A note comes once: if its owner has
forgotten it since, a second import does not bring it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from uuid import uuid4

from keyturn.importing.conversation import GatewayReader, OldConversation, session_id
from keyturn.importing.report import Report
from shared.clock import now_ms
from shared.codec import encode_text
from shared.context.memory import owner
from shared.errors import Malformed
from shared.messages import Source
from shared.session_key import SessionKey
from shared.store.database import Database
from shared.store.imports import sql

SEVERAL = "several people were shown the memory files there: say whose notes they are with --memory-of PLATFORM:USER"
NOBODY = "nobody is known who was shown the memory files: say whose notes they are with --memory-of PLATFORM:USER"
_FILES = "memory"  # stands for the conversation that the notes come from


class OldPeople:
    """Who wrote in private, as far as the conversations say."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}  # the owner of their notes, and the platform
        self._unknown = False

    def meet(self, conversations: Iterable[OldConversation]) -> None:
        """Take note of who wrote in these conversations."""
        for one in conversations:
            user = one.source.user or one.source.user_alt
            if one.key.chat_type == "dm" and user is not None:
                self._owners[owner(one.key, user)] = one.key.platform
            elif one.key.chat_type == "dm":
                self._unknown = True

    def owners(self) -> Sequence[str]:
        """Whose the notes are; nobody's where that cannot be told."""
        elsewhere = [one for one, platform in self._owners.items() if platform != "local"]
        return () if self._unknown or len(elsewhere) > 1 else tuple(self._owners)

    @property
    def reason(self) -> str:
        """Why the notes are nobody's."""
        return SEVERAL if self._unknown or self._owners else NOBODY


def owner_named(text: str) -> str:
    """The owner of the notes of `platform:user`; Malformed for anything else."""
    platform, _, user = text.partition(":")
    if not user:
        raise Malformed(f"{text!r} is no person: write platform:user, as telegram:42")
    return owner(SessionKey.for_source(Source(platform, user, user=user)), user)


async def bring_memory(
    reader: GatewayReader, people: OldPeople, named: Sequence[str], database: Database, report: Report
) -> None:
    """Give the notes of the memory files to those named, or to the one who wrote there."""
    notes, owners = reader.memory(), named or people.owners()
    if notes and not owners:
        report.not_remembered = people.reason
    for whose in owners:
        for note in notes:
            if report.dry_run or await _keep(note, whose, reader.gateway, database):
                report.remembered += 1


async def _keep(note: str, whose: str, gateway: str, database: Database) -> bool:
    """Whether it was not brought along before."""
    digest = blake2b(encode_text([whose, note]).encode(), digest_size=16).hexdigest()
    scope, name, token = session_id(gateway, _FILES), f"note:{digest}", uuid4().hex
    noted, *_ = await database.write(
        sql.import_note_once(scope=scope, name=name, token=token),
        sql.import_note(scope=scope, name=name, token=token, owner=whose, text=note, now=now_ms()),
    )
    return bool(noted)
