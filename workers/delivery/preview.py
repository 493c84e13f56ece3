"""Shows an answer in its chat while it is written.

Where the platform has a preview of its own, that is shown, and the finished answer is sent as always. Elsewhere a draft
(shared/store/drafts.py) goes through the outbox once there is something to read; it is changed as the answer grows, and the
finished answer takes its place by one more change. What is shown meanwhile is never needed: whatever goes wrong ends the
preview and nothing else. Changes count in the budgets of chat and bot (shared/sending) and give way to replies there.

A worker that dies leaves a draft that the next attempt goes on with. A worker that stands still between looking at its lease
and sending a change could change a finished answer back to a part of it: nothing on a platform's side would prevent that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta

from shared import log
from shared.agent.events import Delta, Event, Restarted, Row
from shared.background import survived
from shared.errors import PipelineError, RateLimited, Transient
from shared.failpoints import reach
from shared.lane import Lease
from shared.lane_key import Destination
from shared.messages import Mail, Part
from shared.pipeline import Pipeline
from shared.platforms import PLATFORMS
from shared.platforms.facts import Limit, PreviewLimits
from shared.sending.budgets import SendBudgets
from shared.store.drafts import draft_id
from workers.delivery.budgeted_changes import BudgetedChanges
from workers.delivery.publish import Publisher
from workers.delivery.sender import Rewrites, Sender, ShowsDrafts
from workers.delivery.split import split

LEAST = 24  # characters: fewer are not worth a message of their own
GOES_ON = " …"  # behind a text that is not finished
STRIKES = 3  # changes in a row that fail: then the chat waits for the finished answer
LONGEST_WAIT = timedelta(seconds=30)  # a platform that wants a longer pause gets no more changes
END_SECONDS = 20.0  # for a change that is under way when the answer is finished; platforms are given up on before


class Previews:
    """Shows answers while they are written, through the senders of one process."""

    def __init__(self, pipe: Pipeline, senders: Mapping[str, Sender], publisher: Publisher) -> None:
        self._pipe = pipe
        self._publisher = publisher
        self._senders = dict(senders) if pipe.settings.show_while_written else {}

    def of(self, mail: Mail, lease: Lease) -> Preview | None:
        """A preview of the answer to this mail; None where its platform shows none."""
        source = mail.inbound.source
        sender, facts = self._senders.get(source.platform), PLATFORMS.get(source.platform)
        if sender is None or facts is None or facts.preview is None or facts.text_limit is None:
            return None
        if isinstance(sender, ShowsDrafts) and source.chat_type == "dm":
            own = OwnPreview(sender, mail, self._pipe.budgets)
            return Preview(own, lease, PreviewLimits(sender.draft_seconds), facts.text_limit)
        if not isinstance(sender, Rewrites) or not mail.journaled:
            return None
        shown = DraftMessage(self._pipe, self._publisher, sender, mail, lease.key)
        return Preview(shown, lease, facts.preview, facts.text_limit)


class OwnPreview:
    """The platform's own preview, which vanishes by itself."""

    has_draft = False

    def __init__(self, sender: ShowsDrafts, mail: Mail, budgets: SendBudgets) -> None:
        self._sender = sender
        self._mail = mail
        self._budgeted = BudgetedChanges(budgets, _place(mail))

    async def show(self, text: str) -> timedelta | None:
        """Show this much of the answer. A duration says: not now, and not before that."""
        return await self._budgeted.change(lambda: self._sender.draft(self._mail.inbound, text))


class DraftMessage:
    """A message that is sent once and then changed."""

    def __init__(self, pipe: Pipeline, publisher: Publisher, sender: Rewrites, mail: Mail, session_key: str) -> None:
        self.has_draft = False  # one was opened, by whom ever: the answer takes its place
        self._drafts = pipe.store.drafts
        self._publisher = publisher
        self._sender = sender
        self._mail = mail
        self._key = session_key
        self._receipt = ""
        self._budgeted = BudgetedChanges(pipe.budgets, _place(mail))

    async def show(self, text: str) -> timedelta | None:
        """Show this much of the answer. A duration says: not now, and not before that: the draft is on its way, or an earlier
        attempt's is there, or the budget is needed for replies."""
        if not self.has_draft:
            return await self._open(text)
        if not self._receipt:
            draft = await self._drafts.find(draft_id(self._mail.inbound.id))
            if draft is None or (draft.is_over and not draft.receipt):
                raise PreviewEnded
            if not draft.receipt:
                return timedelta(0)
            self._receipt = draft.receipt
        reach("preview.before_change")
        wait = await self._budgeted.change(lambda: self._sender.rewrite(self._part(text)))
        reach("preview.after_change")
        return wait

    async def _open(self, text: str) -> timedelta | None:
        reach("preview.before_open")
        self.has_draft = True  # also if the database's answer is lost: naming a draft that is not there costs nothing
        opened = await self._drafts.open(self._mail, text, self._key)
        reach("preview.after_open")
        if opened is not None:
            for put in self._publisher.publish(opened.destination, (opened.part_id,)):
                await put
        return None if opened is not None else timedelta(0)

    def _part(self, text: str) -> Part:
        inbound = self._mail.inbound
        key = draft_id(inbound.id)
        return Part(
            0,
            key,
            self._key,
            inbound.source,
            (inbound.event_id,),
            1,
            1,
            text,
            answers=inbound.message,
            edits=self._receipt,
        )


def _place(mail: Mail) -> Destination:
    return Destination(*mail.inbound.source.address.place)


class PreviewEnded(Exception):
    """Nothing more can be shown of this answer before it is finished."""


class Preview:
    """One answer as its chat sees it grow. An agent that writes nothing before it is done costs nothing."""

    def __init__(
        self, shown: OwnPreview | DraftMessage, lease: Lease, limits: PreviewLimits, text_limit: Limit
    ) -> None:
        self._shown = shown
        self._lease = lease
        self._limits = limits
        self._text_limit = text_limit
        self._text = ""
        self._shown_text = ""
        self._task: asyncio.Task[None] | None = None
        self._ends = asyncio.Event()

    @property
    def has_draft(self) -> bool:
        """Whether the answer has a draft that it must take the place of."""
        return self._shown.has_draft

    @property
    def shown(self) -> str:
        """The beginning of the answer that the draft is known to show; empty where nobody knows."""
        return self._shown_text if self.has_draft else ""

    def heard(self, event: Event) -> None:
        """Take in what the agent says. Text before a tool call gives way to the text after it, and an answer that
        could not be finished to the one that begins again."""
        if isinstance(event, Delta):
            self._text += event.text
            if self._task is None:
                self._task = asyncio.create_task(self._run())
        elif isinstance(event, Row | Restarted):
            self._text = ""

    async def end(self) -> None:
        """Show no more. A change that is under way ends first: what follows must not be overtaken by it."""
        self._ends.set()
        if self._task is None:
            return
        if self._lease.lost:
            self._task.cancel()
        await asyncio.wait([self._task], timeout=END_SECONDS)
        self._task.cancel()

    async def _run(self) -> None:
        try:
            await self._show()
        except PreviewEnded:
            pass
        except PipelineError as error:
            log.get().info("preview ended", key=self._lease.key, error=f"{type(error).__name__}: {error}"[:200])
        except Exception as error:
            survived("preview", "a preview failed", error, key=self._lease.key)

    async def _show(self) -> None:
        before, strikes, pause = "", 0, self._limits.seconds
        changes = 0
        while changes < self._limits.changes:
            while (text := self._now()) == before or len(text) < LEAST:
                await self._wait(pause)
            try:
                wait = await self._shown.show(text)
                if wait is None:
                    before, strikes, changes = text, 0, changes + 1
                    self._shown_text = text.removesuffix(GOES_ON)
                pause = max(self._limits.seconds, wait.total_seconds() if wait is not None else 0.0)
            except Transient as error:
                strikes, changes = strikes + 1, changes + 1
                asked = error.retry_after if isinstance(error, RateLimited) else timedelta(0)
                if strikes >= STRIKES or asked > LONGEST_WAIT:
                    raise
                pause = max(pause, asked.total_seconds())
            await self._wait(pause)

    async def _wait(self, seconds: float) -> None:
        """PreviewEnded if the answer is finished before, or another worker has the key."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ends.wait()
        if self._ends.is_set() or self._lease.lost:
            raise PreviewEnded

    def _now(self) -> str:
        """What the chat would see now: the beginning, if the whole is too long for one message."""
        text = self._text.strip()
        unfinished = text + GOES_ON
        return (
            unfinished
            if self._text_limit.measure(unfinished) <= self._text_limit.units
            else split(text, self._text_limit)[0]
        )
