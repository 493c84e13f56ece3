"""The inbox of a running turn: messages of its sender that it may take in. They are mail until the turn's commit names them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from shared import log
from shared.errors import Unavailable
from shared.failpoints import reach
from shared.lane import Lease
from shared.messages import Inbound, Mail
from shared.pipeline import Pipeline
from workers.media.fetch import MediaFetcher
from workers.turn.busy.behind import Companion, MayGive, companions, look_behind, people_behind, still_waiting


class TurnInbox:
    """What waits for one turn. Taking removes nothing from the mailbox: a crash leaves every message where it was."""

    __slots__ = ("_lease", "_may_give", "_media", "_offered", "_pipe", "_running", "_said", "_taken", "takes_all")

    def __init__(
        self, running: Sequence[Mail], lease: Lease, pipe: Pipeline, media: MediaFetcher | None, may_give: MayGive
    ) -> None:
        self.takes_all = False  # the mode is `steer`: not only what was said with /steer
        self._running = running
        self._lease = lease
        self._pipe = pipe
        self._media = media
        self._may_give = may_give
        self._offered = 0
        self._taken: dict[str, Companion] = {}  # by inbound id
        self._said: dict[str, Inbound] = {}  # the same, with their files

    def offer(self, found: Iterable[Companion]) -> None:
        """The mailbox holds these now."""
        self._offered = sum(self._is_new(one) for one in found)

    def waiting(self) -> int:
        return self._offered

    async def take(self, most: int = 3) -> tuple[Inbound, ...]:
        """Nothing is given while the database is away: those messages get turns of their own, or are taken later."""
        if not self._offered:
            return ()
        reach("steer.before_take")
        try:
            found = await self._found()
            taken = found[:most]
            said = [await self._with_files(one.said) for one in taken]
        except Unavailable as error:
            log.get().warning("messages not taken into the turn", key=self._lease.key, error=str(error))
            return ()
        self._offered = len(found) - len(taken)
        self._taken |= {one.mail.inbound.id: one for one in taken}
        self._said |= {one.id: one for one in said}
        reach("steer.after_take")
        return tuple(said)

    async def take_again(self, ids: Collection[str]) -> None:
        """Mail that an earlier attempt showed to its model, and acted on: it is not given again, and ends with the turn. What has
        ended meanwhile is left out."""
        journal, first = self._pipe.store.journal, self._running[0]
        waiting = await look_behind(first, self._lease, journal)
        found = [mail for mail in people_behind(self._running, waiting) if mail.inbound.id in ids]
        if not first.journaled:
            found = [*await still_waiting(found, journal)]
        self._taken |= {mail.inbound.id: Companion(mail, mail.inbound, is_steer=False) for mail in found}

    def given(self, id: str) -> Inbound | None:
        return self._said.get(id)

    @property
    def taken(self) -> tuple[Mail, ...]:
        """The mail that was given to the turn."""
        return tuple(one.mail for one in self._taken.values())

    def mail_of(self, ids: Sequence[str]) -> tuple[Mail, ...]:
        """The mail of messages that were taken and still wait, in its order."""
        return tuple(sorted((self._taken[id].mail for id in ids if id in self._taken), key=lambda mail: mail.seq))

    async def _found(self) -> list[Companion]:
        journal = self._pipe.store.journal
        first = self._running[0]
        waiting = await look_behind(first, self._lease, journal)
        found = [one for one in companions(self._running, waiting, self._may_give) if self._is_new(one)]
        if first.journaled:
            return found
        pending = {mail.seq for mail in await still_waiting([one.mail for one in found], journal)}
        return [one for one in found if one.mail.seq in pending]

    def _is_new(self, one: Companion) -> bool:
        return (self.takes_all or one.is_steer) and one.mail.inbound.id not in self._taken

    async def _with_files(self, inbound: Inbound) -> Inbound:
        if self._media is None or not inbound.media:
            return inbound
        return await self._media.fetched(inbound)
