"""`keyturn chat`: a conversation in this terminal, through the real pipeline (platform `local`)."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import nullcontext, suppress
from itertools import cycle
from typing import TYPE_CHECKING

import typer

from keyturn.cli import show
from keyturn.cli.chat_deployment import Joined, deployment
from keyturn.cli.conversation import TerminalConversation, open_conversation
from shared import log
from shared.background import end_tasks
from shared.messages import Source
from shared.pipeline import open_pipeline
from shared.platforms.local import NAME as PLATFORM
from shared.settings import Settings
from shared.store.database.schema import require_schema

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.input import Input

LEAVE = ("/quit", "/exit")
SIGNS = ("thinking.  ", "thinking.. ", "thinking...")


def chat(settings: Settings, name: str, message: str | None = None) -> None:
    """Talk until the input ends, or ask one question. Starts an `up` of its own where none runs, and stops it at the end."""
    log.setup("error", "chat")
    try:
        with deployment(settings) as joined:
            answered = asyncio.run(_talk(joined, name, message))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    raise typer.Exit(0 if answered else 1)


async def _talk(joined: Joined, name: str, message: str | None) -> bool:
    """Whether everything that was waited for was answered. Unavailable when people talk here and the `up` ends."""
    user = os.environ.get("USER", "me")
    source = Source(PLATFORM, name, user=user, user_name=user)
    async with open_pipeline(joined.settings) as pipe:
        await require_schema(pipe.store.database)
        is_talk = message is None and sys.stdin.isatty() and sys.stdout.isatty()
        async with open_conversation(pipe, source, joined.log, own_only=not is_talk) as conversation:
            if is_talk:
                await _converse_until_gone(conversation, joined)
                return True
            return await _say_all(conversation, message)


async def _converse_until_gone(conversation: TerminalConversation, joined: Joined) -> None:
    """Nobody should talk to a deployment that is not there. A single question waits: the next `up` answers it."""
    talking, gone = asyncio.create_task(_converse(conversation)), asyncio.create_task(joined.until_gone())
    try:
        await asyncio.wait((talking, gone), return_when=asyncio.FIRST_COMPLETED)
        (talking if talking.done() else gone).result()
    finally:
        await end_tasks(talking, gone)


async def _say_all(conversation: TerminalConversation, message: str | None) -> bool:
    if sys.stdout.isatty() and sys.stderr.isatty():
        _show_thinking(conversation)
    if message is not None:
        return await conversation.ask(message)
    answered = [await conversation.ask(line) async for line in _lines()]
    return all(answered)


def _show_thinking(conversation: TerminalConversation) -> None:
    """A sign at the beginning of the line while an answer is awaited; it goes before anything is printed."""
    signs, blank = cycle(SIGNS), " " * len(SIGNS[0])

    def show_sign() -> None:
        if conversation.is_thinking:
            print(f"\r{next(signs)}", end="", file=sys.stderr, flush=True)

    conversation.on_look = show_sign
    conversation.before_print = lambda: print(f"\r{blank}\r", end="", file=sys.stderr, flush=True)


async def _converse(conversation: TerminalConversation) -> None:
    """A terminal: lines can be edited and recalled, and typed while a turn runs. Replies appear above the line.

    One prompt serves the whole conversation: between two, a Ctrl-C would be a signal that ends the program.
    """
    from prompt_toolkit.patch_stdout import patch_stdout

    print("Enter sends; /stop or Ctrl-C stops the answer; /quit, Ctrl-D or Ctrl-C twice leaves; /help lists commands.")
    typed: asyncio.Queue[str | None] = asyncio.Queue()
    prompt = _prompt(typed, await conversation.lines_said())
    _show_thinking_beside(prompt, conversation)
    with patch_stdout():
        hearing = asyncio.create_task(_hear(conversation, typed))
        hearing.add_done_callback(lambda _: prompt.app.exit() if prompt.app.is_running else None)
        try:
            with suppress(EOFError):
                await prompt.prompt_async()
        finally:
            await end_tasks(hearing)


def _show_thinking_beside(prompt: PromptSession[str], conversation: TerminalConversation) -> None:
    """A sign at the right end of the line that is typed, while an answer is awaited."""
    shown, signs = "", cycle(SIGNS)

    def look() -> None:
        nonlocal shown
        before, shown = shown, next(signs) if conversation.is_thinking else ""
        if shown != before:
            prompt.app.invalidate()

    prompt.rprompt = lambda: shown
    conversation.on_look = look


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

    return PromptSession("> ", history=InMemoryHistory(history), key_bindings=keys, input=_raw_input())


def _raw_input() -> Input:
    """The keyboard, in raw mode also while a reply is printed.

    prompt_toolkit gives the terminal its own line editing back for that moment. A Ctrl-D typed then was lost, letters were
    shown twice, and a Ctrl-C became a signal.
    """
    from prompt_toolkit.input import create_input

    keyboard = create_input()
    keyboard.cooked_mode = nullcontext  # type: ignore[method-assign]
    return keyboard


async def _hear(conversation: TerminalConversation, typed: asyncio.Queue[str | None]) -> None:
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
