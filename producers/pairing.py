"""Pairing: a stranger who writes to the bot directly is told a code, and nothing else, until somebody approves it.

Nobody is given a code in a group: everybody there would read it.
"""

from __future__ import annotations

import time
from contextlib import suppress

from shared import log
from shared.clock import now_ms
from shared.context.labels import inert
from shared.errors import Unavailable
from shared.failpoints import reach
from shared.messages import Inbound, Mail, Reply
from shared.pipeline import Pipeline
from shared.platforms.settings import ChatSettings
from shared.routing import Sharing, agent_for
from shared.store.dead import without_names
from shared.store.pairing import CodeAnswer, PairingPerson
from shared.store.pairing_code import Code
from shared.store.parts import PartRow, parts_of

CODE_NOTICE = (
    "I do not know you yet. Your pairing code is `{code}`. Give it to the person who runs this bot: they let you in with "
    "`keyturn pair approve {platform} {code}` within one hour."
)
LATER_NOTICE = "Too many people are asking for a pairing code just now. Please write again in an hour."
NAME_LENGTH = 64  # characters of a name that are kept
ID_LENGTH = 256  # no platform has longer ids
QUIET_SECONDS = 60.0  # how long a person who was answered is not asked about again by this process
MOST_QUIET = 10_000


class Pairing:
    """The strangers of one platform."""

    def __init__(self, pipe: Pipeline, block: ChatSettings) -> None:
        self._pipe = pipe
        self._on = pipe.settings.pairing if block.pairing is None else block.pairing
        self._quiet: dict[str, float] = {}  # user id -> until when

    async def admits(self, inbound: Inbound) -> bool:
        """Whether somebody approved the sender. Costs no read of the database while the answer is fresh in memory.

        Unavailable if that cannot be known: the message must come again.
        """
        person = _person(inbound)
        return person is not None and await self._pipe.store.approvals.has(person)

    async def answer(self, inbound: Inbound) -> None:
        """Tell a stranger a code, if they are to have one; the message itself is not kept. A message that comes again
        after a crash is answered by silence: the code was told, or was not made."""
        person = _person(inbound)
        if not self._on or inbound.source.chat_type != "dm" or person is None or self._is_quiet(person.user_id):
            return
        code = Code.fresh()
        part = self._notice(inbound, code, CODE_NOTICE.format(code=code.plain, platform=person.platform))
        later = self._notice(inbound, code, LATER_NOTICE)
        reach("pair.before_code")
        answered, told = await self._pipe.store.pairings.ask(person, code, part, later)
        reach("pair.after_code")
        self._be_quiet(person.user_id)
        if answered is not CodeAnswer.SILENCE:
            log.get().info("stranger asks to be paired", platform=person.platform, answer=answered.value)
        if told is not None:
            with suppress(Unavailable):  # the housekeeper finds the part when Redis is back
                await self._pipe.deliveries.put(told.destination, told.part_id, str(told.part_id).encode())

    def _notice(self, inbound: Inbound, code: Code, text: str) -> PartRow:
        settings, source = self._pipe.settings, inbound.source
        key = str(Sharing.of(settings).key_of(source, agent_for(source, settings)))
        mail = Mail(0, without_names(inbound))
        _, [part] = parts_of([mail], [Reply(text)], turn_id=code.turn_id, session_key=key, now=now_ms())
        return part

    def _is_quiet(self, user_id: str) -> bool:
        return time.monotonic() < self._quiet.get(user_id, 0.0)

    def _be_quiet(self, user_id: str) -> None:
        self._quiet.pop(user_id, None)
        self._quiet[user_id] = time.monotonic() + QUIET_SECONDS
        while len(self._quiet) > MOST_QUIET:
            del self._quiet[next(iter(self._quiet))]


def _person(inbound: Inbound) -> PairingPerson | None:
    """Who writes. None: nobody whom an approval could name."""
    source = inbound.source
    ids = [id for id in (source.user, source.user_alt) if id]
    if not ids or any(len(id) > ID_LENGTH for id in ids):
        return None
    name = inert(source.user_name or "", NAME_LENGTH)
    return PairingPerson(source.platform, ids[0], ids[1] if len(ids) > 1 else None, name)
