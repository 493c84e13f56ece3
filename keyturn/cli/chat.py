"""`keyturn chat`: a conversation in this terminal, through the real pipeline (platform `local`)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import typer

from keyturn.cli import show
from shared import log
from shared.background import end_tasks
from shared.clock import now_ms
from shared.codec import message_id
from shared.door import accept
from shared.embedded import child, running
from shared.errors import ConfigurationError, MailboxFull, Unavailable
from shared.messages import Inbound, Source, State
from shared.own_modules import command_of
from shared.pipeline import Pipeline, open_pipeline
from shared.platforms.local import NAME as PLATFORM
from shared.reading.keys import KeyPhase, state_of_key
from shared.reading.replies import replies
from shared.reading.trace import Trace, trace
from shared.routing import agent_for
from shared.session_key import SessionKey
from shared.settings import PREFIX, Settings
from shared.store.database.schema import require_schema

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

ANSWER_SECONDS = 300.0
LOOK_SECONDS = 0.2  # between looks at a message that may end without a reply
HISTORY_LINES = 200
LEAVE = ("/quit", "/exit")


def chat(settings: Settings, name: str, message: str | None = None) -> None:
    """Talk until the input ends, or ask one question. Starts an `up` of its own where none runs, and stops it at the end."""
    log.setup("error", "chat")
    try:
        with _deployment(settings) as joined:
            answered = asyncio.run(_talk(joined, name, message))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    raise typer.Exit(0 if answered else 1)


async def _talk(settings: Settings, name: str, message: str | None) -> bool:
    """Whether everything that was waited for was answered."""
    user = os.environ.get("USER", "me")
    source = Source(PLATFORM, name, user=user, user_name=user)
    async with open_pipeline(settings) as pipe:
        await require_schema(pipe.store.database)
        async with open_conversation(pipe, source) as conversation:
            if message is not None:
                return await conversation.ask(message)
            if sys.stdin.isatty() and sys.stdout.isatty():
                await _converse(conversation)
                return True
            answered = [await conversation.ask(line) async for line in _lines()]
            return all(answered)


class Conversation:
    """Sends what is said here and prints what is answered, whoever asked for it."""

    def __init__(self, pipe: Pipeline, source: Source) -> None:
        self._pipe = pipe
        self._source = source
        self._key = str(SessionKey.for_source(source, agent=agent_for(source, pipe.settings)))
        self._printed: set[str] = set()  # turns whose replies were printed to their end
        self._news = asyncio.Event()
        self._delay_is_told = False

    async def print_replies(self, after: int) -> None:
        async for reply in replies(self._pipe, self._key, after):
            if reply is None:  # nothing was said for a while
                await self._tell_of_delay()
                continue
            self._delay_is_told = False
            print(show.plain(reply.text, lines=True), flush=True)
            if reply.part == reply.parts:
                self._printed.add(reply.turn_id)
                self._news.set()

    async def _tell_of_delay(self) -> None:
        """Say once, until the next reply, that a turn failed and runs again later: a model that is away stays so for long."""
        if self._delay_is_told:
            return
        with suppress(Unavailable):
            if (await state_of_key(self._pipe.turns, self._key)).state is KeyPhase.DELAYED:
                self._delay_is_told = True
                print("no answer yet: the turn failed and is tried again; the log of `up` says why", file=sys.stderr)

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
        event_id = uuid4().hex
        inbound = Inbound(message_id(PLATFORM, "", event_id), event_id, self._source, text, received_at=now_ms())
        try:
            await accept(self._pipe, inbound)
        except (Unavailable, MailboxFull) as error:
            print(f"not taken: {error}", file=sys.stderr)
            return None
        return inbound.id

    async def ask(self, text: str) -> bool:
        """Say it and wait until it is answered and the answer is printed. False: it ended otherwise, or takes too long."""
        id = await self.say(text)
        if id is None:
            return False
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._ended(id) in (State.ANSWERED, State.MERGED)
        except TimeoutError:
            print("no answer yet; the message stays in the pipeline", file=sys.stderr)
            return False

    async def _ended(self, id: str) -> str:
        """The state in which a message ended, once its replies are printed."""
        while True:
            self._news.clear()
            found = await trace(self._pipe, id)
            if found is not None and self._is_over(found):
                return found.state
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                continue

    def _is_over(self, found: Trace) -> bool:
        return found.state != State.PENDING and (not found.parts or found.turn_id in self._printed)

    async def stop_turn(self) -> bool:
        """Send /stop if the agent is at work on this conversation. False: it is not."""
        try:
            if (await state_of_key(self._pipe.turns, self._key)).state is KeyPhase.IDLE:
                return False
        except Unavailable as error:
            print(f"cannot be stopped: {error}", file=sys.stderr)
            return False
        return await self.say("/stop") is not None


@asynccontextmanager
async def open_conversation(pipe: Pipeline, source: Source) -> AsyncIterator[Conversation]:
    conversation = Conversation(pipe, source)
    printer = asyncio.create_task(conversation.print_replies(await conversation.last_reply()))
    try:
        yield conversation
    finally:
        await end_tasks(printer)


async def _converse(conversation: Conversation) -> None:
    """A terminal: lines can be edited and recalled, and typed while a turn runs. Replies appear above the line.

    One prompt serves the whole conversation: between two, a Ctrl-C would be a signal that ends the program.
    """
    from prompt_toolkit.patch_stdout import patch_stdout

    print("Enter sends; /stop or Ctrl-C stops the answer; /quit, Ctrl-D or Ctrl-C twice leaves; /help lists commands.")
    typed: asyncio.Queue[str | None] = asyncio.Queue()
    prompt = _prompt(typed, await conversation.lines_said())
    with patch_stdout():
        hearing = asyncio.create_task(_hear(conversation, typed))
        hearing.add_done_callback(lambda _: prompt.app.exit() if prompt.app.is_running else None)
        with suppress(EOFError):
            await prompt.prompt_async()
        hearing.cancel()
        with suppress(asyncio.CancelledError):
            await hearing


def _prompt(typed: asyncio.Queue[str | None], history: list[str]) -> PromptSession[str]:
    """A line to type in that stays. Each Enter gives its text to `typed`, each Ctrl-C gives None."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.enums import DEFAULT_BUFFER
    from prompt_toolkit.filters import has_focus
    from prompt_toolkit.history import InMemoryHistory
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    keys = KeyBindings()

    @keys.add("enter", filter=has_focus(DEFAULT_BUFFER))
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        typed.put_nowait(buffer.text)
        print(f"> {show.plain(buffer.text, lines=True)}")
        buffer.reset(append_to_history=bool(buffer.text.strip()))

    @keys.add("c-c")
    @keys.add("<sigint>")
    def interrupt(event: KeyPressEvent) -> None:
        event.current_buffer.reset()
        typed.put_nowait(None)

    return PromptSession("> ", history=InMemoryHistory(history), key_bindings=keys)


async def _hear(conversation: Conversation, typed: asyncio.Queue[str | None]) -> None:
    """Pass on what is typed, up to the word that leaves or a second Ctrl-C in a row."""
    interrupted = False
    while True:
        text = await typed.get()
        if text is None and interrupted:
            return
        interrupted = text is None
        if text is None:
            stopped = await conversation.stop_turn()
            print("stopping; Ctrl-C again leaves" if stopped else "Ctrl-C again leaves")
        elif text.strip() in LEAVE:
            return
        elif text.strip():
            await conversation.say(text.strip())


async def _lines() -> AsyncIterator[str]:
    """The lines of an input that is no terminal, up to its end. Read in a thread that nobody waits for when we leave."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str | None] = asyncio.Queue()

    def read() -> None:
        try:
            for line in sys.stdin:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, None)
        except RuntimeError:
            return  # the loop is closed: we have left

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while (line := await lines.get()) is not None:
        text = line.strip()
        if text in LEAVE:
            return
        if text:
            yield text


@contextmanager
def _deployment(settings: Settings) -> Iterator[Settings]:
    """The settings of the deployment to talk to: the one that is named, the `up` of this directory, or one of our own."""
    if settings.redis_url is not None:
        yield settings
        return
    own = _up(settings)
    try:
        yield running.joined(settings)
    finally:
        if own is not None:
            own.terminate()
            own.wait()


def _up(settings: Settings) -> subprocess.Popen[bytes] | None:
    """Wait until an `up` is ready here, starting one where none is; the one that was started."""
    own: subprocess.Popen[bytes] | None = None
    told = ""
    while (found := running.find(settings.data_dir)) is None or found.stopping:
        if own is not None and own.poll() is not None:
            if not running.held(settings.data_dir):
                raise ConfigurationError(_last_words(settings.data_dir))
            own = None  # another was faster: wait for that one
        if own is None and not running.held(settings.data_dir):
            print("starting…", file=sys.stderr)
            own = _start(settings)
        elif own is None and not told:
            told = "waiting for the `keyturn up` of this directory"
            print(f"{told}…", file=sys.stderr)
        time.sleep(0.05)
    if own is None and found.agent != settings.agent and "agent" in settings.model_fields_set:
        print(f"the `keyturn up` that runs here has agent {found.agent}", file=sys.stderr)
    return own


def _start(settings: Settings) -> subprocess.Popen[bytes]:
    running.make_directory(settings.data_dir)
    environment = {**os.environ, f"{PREFIX}AGENT": settings.agent, f"{PREFIX}LOG_FORMAT": "text", "NO_COLOR": "1"}
    command = command_of("keyturn.cli", "up", "--port", "0")
    with os.fdopen(os.open(_log_file(settings.data_dir), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        return child.start(command, env=environment, stdout=subprocess.DEVNULL, stderr=file)


def _log_file(data_dir: Path) -> Path:
    return data_dir / "chat.log"


def _last_words(data_dir: Path) -> str:
    """Why an `up` of ours ended, in its own words."""
    lines = _log_file(data_dir).read_text(errors="replace").splitlines()
    said = [line.removeprefix("keyturn: ") for line in lines if line.startswith("keyturn: ")]
    return show.plain(said[-1]) if said else f"could not start; see {_log_file(data_dir)}"
