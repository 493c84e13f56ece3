"""What a database is told when it was restored, in the transaction that brings it back.

Nobody knows which of the replies that waited when the backup was made were sent since. So each is given up with a dead letter of
reason `held`, and an operator decides: `keyturn deliveries release CHAT --buried` or `keyturn dead replay-all --reason held` send
again, `keyturn deliveries drop` and `keyturn dead drop-all` close. The statements know backups of every version.
"""

from __future__ import annotations

from collections.abc import Sequence

from shared.clock import now_ms
from shared.codec import storable
from shared.errors import CannotDo
from shared.store.audit import TEXT_LIMIT
from shared.value import value

HELD = "held"
HOLDING = "lane:turns"  # the pause that `--hold` begins
DETAIL = "it waited when the backup was made that was restored: it may have been sent since"
_PAUSES, _AUDIT = "0026_pauses", "0019_dashboard"  # the migrations that made these tables


@value
class RestoreNote:
    """What is written down of a restore: who made it, of what, when, and whether waiting messages are to be held."""

    who: str
    role: str
    file: str
    hold: bool
    at: int

    @property
    def held_letters(self) -> str:
        """A query for how many replies are held."""
        return f"SELECT COUNT(*) FROM dead WHERE kind = 'reply' AND reason = '{HELD}' AND created_at = {self.at}"


WAITING = "SELECT COUNT(*) FROM inbox WHERE state = 'pending'"


def note(who: str, role: str, file: str, *, hold: bool) -> RestoreNote:
    return RestoreNote(who, role, file, hold, now_ms())


def knows_pauses(migrations: Sequence[str]) -> bool:
    return _PAUSES in migrations


def statements(about: RestoreNote, migrations: Sequence[str]) -> list[str]:
    """Hold the replies, begin the pause if it was asked for, and write the audit row, where the backup has a table for it."""
    made = [
        # A part of which nobody saw the end stays marked as one that was perhaps sent.
        f"""INSERT INTO dead (kind, ref, session_key, reason, detail, payload, attempts, state, created_at)
            SELECT 'reply', CAST(id AS TEXT), session_key, '{HELD}', {_text(DETAIL)}, payload, attempts, 'open', {about.at}
            FROM outbox WHERE state IN ('pending', 'sending') ORDER BY id""",
        f"""UPDATE outbox SET ambiguous = CASE WHEN state = 'sending' THEN 1 ELSE ambiguous END, state = 'buried',
            reason = '{HELD}' WHERE state IN ('pending', 'sending')""",
    ]
    if about.hold:
        if not knows_pauses(migrations):
            raise CannotDo("the backup is of a version without pauses: restore it without --hold")
        made += [
            f"""INSERT INTO pause (scope, who, since) VALUES ('{HOLDING}', {_text(about.who)}, {about.at})
                ON CONFLICT (scope) DO NOTHING""",
            "UPDATE pause_version SET version = version + 1",
        ]
    if _AUDIT in migrations:
        row = ", ".join(map(_text, (about.who, about.role, "restore", about.file, "done")))
        made.append(f"INSERT INTO audit (at, who, role, action, target, outcome) VALUES ({about.at}, {row})")
    return made


def _text(text: str) -> str:
    """A text of SQL, in both databases: PostgreSQL has standard_conforming_strings on while a dump is restored."""
    return "'" + storable(text[:TEXT_LIMIT]).replace("'", "''") + "'"
