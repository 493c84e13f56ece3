"""A conversation in this terminal: sends what is said here, prints what is answered, and says why an answer does not come."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from uuid import uuid4

from keyturn.cli import show
from shared.background import end_tasks
from shared.clock import now_ms
from shared.codec import message_id
from shared.door import accept
from shared.errors import MailboxFull, Unavailable
from shared.messages import Inbound, Source, State
from shared.pipeline import Pipeline
from shared.reading.keys import KeyPhase, state_of_key
from shared.reading.replies import replies
from shared.reading.trace import Trace, trace
from shared.routing import agent_for
from shared.session_key import SessionKey

ANSWER_SECONDS = 300.0
LOOK_SECONDS = 0.2  # between looks at a message that may end without a reply
HISTORY_LINES = 200
LETTERS = 20  # dead letters that are looked through for the one of a message


class TerminalConversation:
    """Sends what is said here and prints what is answered. `log` is where the workers say more.

    People read the whole conversation, whoever asked: from a second terminal, say. With `own_only`, for programs, answers to messages
    that were said elsewhere are left out.
    """

    def __init__(self, pipe: Pipeline, source: Source, log: str, *, own_only: bool) -> None:
        self._pipe = pipe
        self._source = source
        self._log = log
        self._own_only = own_only
        self._said: set[str] = set()  # the event ids of messages that were said here
        self._key = str(SessionKey.for_source(source, agent=agent_for(source, pipe.settings)))
        self._printed: set[str] = set()  # turns whose replies were printed to their end
        self._news = asyncio.Event()
        self._waiting: list[str] = []  # messages that were said here and have not ended
        self._delay_is_told = False
        self.on_look: Callable[[], None] = lambda: None  # called again and again while the agent is at work
        self.before_print: Callable[[], None] = lambda: None

    @property
    def is_thinking(self) -> bool:
        """Whether something that was said here has not ended yet."""
        return bool(self._waiting)

    async def print_replies(self, after: int) -> None:
        async for reply in replies(self._pipe, self._key, after):
            if reply is None:  # nothing was said for a while
                continue
            if self._own_only and reply.in_reply_to and self._said.isdisjoint(reply.in_reply_to):
                continue
            self._delay_is_told = False
            self._print(show.plain(reply.text, lines=True))
            if reply.part == reply.parts:
                self._printed.add(reply.turn_id)
                self._news.set()

    async def watch(self) -> None:
        """Look after what was said here: say once, until the next reply, why it is tried again, and why it failed."""
        while True:
            with suppress(Unavailable):
                for id in list(self._waiting):
                    await self._look(id)
            self.on_look()
            await asyncio.sleep(LOOK_SECONDS)

    async def last_reply(self) -> int:
        """Replies of earlier conversations are not printed again."""
        after = 0
        while rows := await self._pipe.store.outbox.of_session(self._key, after=after):
            after = rows[-1]["id"]
        return after

    async def lines_said(self) -> list[str]:
        """What the user said last, oldest first."""
        session = await self._pipe.store.sessions.find(self._key)
        rows = await self._pipe.store.sessions.messages(session["id"], HISTORY_LINES) if session else []
        return [row["text"] for row in rows if row["role"] == "user"]

    async def say(self, text: str) -> str | None:
        """Put a message into the pipeline; its id, or None when it was not taken."""
        platform, event_id = self._source.platform, uuid4().hex
        inbound = Inbound(message_id(platform, "", event_id), event_id, self._source, text, received_at=now_ms())
        self._said.add(event_id)
        try:
            await accept(self._pipe, inbound)
        except (Unavailable, MailboxFull) as error:
            self._tell(f"not taken: {error}")
            return None
        self._waiting.append(inbound.id)
        return inbound.id

    async def ask(self, text: str) -> bool:
        """Say it and wait until it is answered and the answer is printed. False: it ended otherwise, or takes too long."""
        id = await self.say(text)
        if id is None:
            return False
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                ended = await self._ended(id)
        except TimeoutError:
            self._tell("no answer yet; the message stays in the pipeline")
            return False
        if ended.state in (State.ANSWERED, State.MERGED):
            return True
        if ended.state != State.DEAD and not ended.parts:  # stopped from elsewhere, say: nobody has said so here
            self._tell(f"not answered: {show.plain(ended.reason or ended.state)}")
        return False

    async def stop_turn(self) -> bool:
        """Send /stop if the agent is at work on this conversation. False: it is not."""
        try:
            if (await state_of_key(self._pipe.turns, self._key)).state is KeyPhase.IDLE:
                return False
        except Unavailable as error:
            self._tell(f"cannot be stopped: {error}")
            return False
        return await self.say("/stop") is not None

    async def _ended(self, id: str) -> Trace:
        """How a message ended, once its replies, or the reason why there is none, are printed."""
        while True:
            self._news.clear()
            found = await trace(self._pipe, id)
            if found is not None and self._is_over(found):
                await self._look(id)
                return found
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                continue

    def _is_over(self, found: Trace) -> bool:
        return found.state != State.PENDING and (not found.parts or found.turn_id in self._printed)

    async def _look(self, id: str) -> None:
        found = await trace(self._pipe, id)
        if found is None or found.state == State.PENDING:
            if found is not None and not self._delay_is_told:
                await self._tell_delay(found)
            return
        cause = await self._cause(found) if found.state == State.DEAD else ""
        if id not in self._waiting:  # somebody else looked meanwhile
            return
        self._waiting.remove(id)
        if cause:
            self._tell(f"not answered: {show.plain(cause)}. More in {self._log}")

    async def _tell_delay(self, found: Trace) -> None:
        """Why the message is tried again, or the one that it waits behind."""
        what, reason = "it", found.reason
        first = await self._pipe.store.journal.pending(self._key, after=0, limit=1) if reason is None else []
        if first and first[0].id != found.id and (row := await self._pipe.store.journal.find(first[0].id)) is not None:
            what, reason = "a message before it", row["reason"]
        if reason:
            self._delay_is_told = True
            self._tell(f"no answer yet, {what} is tried again: {show.plain(reason)}. More in {self._log}")

    async def _cause(self, found: Trace) -> str:
        letters = await self._pipe.store.dead.all(state="open", limit=LETTERS)
        detail = next((letter["detail"] for letter in letters if letter["ref"] == found.id), "")
        return f"{found.reason}: {detail}" if detail else str(found.reason)

    def _print(self, text: str) -> None:
        self.before_print()
        print(text, flush=True)

    def _tell(self, text: str) -> None:
        self.before_print()
        print(text, file=sys.stderr, flush=True)


@asynccontextmanager
async def open_conversation(
    pipe: Pipeline, source: Source, log: str, *, own_only: bool
) -> AsyncIterator[TerminalConversation]:
    """With its printer and its watcher, which end with it."""
    conversation = TerminalConversation(pipe, source, log, own_only=own_only)
    printer = asyncio.create_task(conversation.print_replies(await conversation.last_reply()))
    watcher = asyncio.create_task(conversation.watch())
    try:
        yield conversation
    finally:
        await end_tasks(printer, watcher)
