"""`keyturn chat`: a conversation in this terminal, through the real pipeline (platform `local`)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from uuid import uuid4

from rich.console import Console

from producers.api import replies
from producers.intake import accept
from shared import log
from shared.clock import now_ms
from shared.codec import message_id
from shared.embedded import child, running
from shared.errors import ConfigurationError, MailboxFull, Unavailable
from shared.messages import Inbound, Source
from shared.pipeline import Pipeline, open_pipeline
from shared.routing import agent_for
from shared.session_key import SessionKey
from shared.settings import PREFIX, Settings

START_SECONDS = 60.0
LAST_REPLY_SECONDS = 300.0
console = Console(highlight=False)


def chat(settings: Settings, name: str) -> None:
    """Read lines, print replies. Starts an `up` of its own when none runs here, and stops it at the end."""
    log.setup("error", "chat")
    own = None
    if settings.redis_url is None and running.find(settings.data_dir) is None:
        own = _start_up(settings)
    try:
        asyncio.run(_talk(running.joined(settings), name))
    except KeyboardInterrupt:
        pass
    finally:
        if own is not None:
            own.terminate()
            own.wait()


async def _talk(settings: Settings, name: str) -> None:
    user = os.environ.get("USER", "me")
    source = Source("local", name, user=user, user_name=user)
    async with open_pipeline(settings) as pipe:
        key = str(SessionKey.for_source(source, agent=agent_for(source, settings)))
        heard = _Heard(await _last_reply(pipe, key))
        printer = asyncio.create_task(_print_replies(pipe, key, heard))
        console.print("[dim]Type a message; an empty line or Ctrl-D ends.[/dim]")
        while line := await asyncio.to_thread(_read_line):
            event_id = uuid4().hex
            inbound = Inbound(message_id("local", "", event_id), event_id, source, line, received_at=now_ms())
            try:
                await accept(pipe, inbound)
            except (Unavailable, MailboxFull) as error:
                console.print(f"[red]not taken: {error}[/red]")
                continue
            await heard.answer_to(event_id)
        printer.cancel()


class _Heard:
    """What has been printed, and a way to wait for the answer to one message."""

    def __init__(self, after: int) -> None:
        self.after = after
        self._answered: set[str] = set()
        self._changed = asyncio.Condition()

    async def note(self, ids: list[str]) -> None:
        async with self._changed:
            self._answered.update(ids)
            self._changed.notify_all()

    async def answer_to(self, event_id: str) -> None:
        async with self._changed:
            try:
                async with asyncio.timeout(LAST_REPLY_SECONDS):
                    await self._changed.wait_for(lambda: event_id in self._answered)
            except TimeoutError:
                console.print("[dim]no answer yet; it will be printed when it comes[/dim]")


async def _print_replies(pipe: Pipeline, key: str, heard: _Heard) -> None:
    async for reply in replies(pipe, key, heard.after):
        if reply is not None:
            console.print(reply["text"], markup=False)
            if reply["part"] == reply["parts"]:
                await heard.note(reply["in_reply_to"])


async def _last_reply(pipe: Pipeline, key: str) -> int:
    """Replies of earlier conversations are not printed again."""
    after = 0
    while rows := await pipe.store.outbox.of_session(key, after=after):
        after = rows[-1]["id"]
    return after


def _read_line() -> str:
    try:
        return input("> " if sys.stdin.isatty() else "").strip()
    except EOFError:
        return ""


def _start_up(settings: Settings) -> subprocess.Popen[bytes]:
    console.print("[dim]starting…[/dim]")
    environment = {**os.environ, f"{PREFIX}AGENT": settings.agent, f"{PREFIX}LOG_LEVEL": "error"}
    command = [sys.executable, "-m", "shared.cli", "up", "--port", "0"]
    up = child.start(command, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + START_SECONDS
    while running.find(settings.data_dir) is None:
        if up.poll() is not None or time.monotonic() > deadline:
            up.terminate()
            raise ConfigurationError("could not start; try `keyturn up` to see why")
        time.sleep(0.05)
    return up
