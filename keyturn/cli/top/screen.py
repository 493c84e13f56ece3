"""The live screen of `top`: looks every second, draws after each look and each key, and acts when it is asked to."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace

import redis
from rich.console import Console
from rich.live import Live

from keyturn.cli.acting import operator
from keyturn.cli.top.frame import Size, frame
from keyturn.cli.top.keyboard import keyboard
from keyturn.cli.top.look import TopLook, look
from keyturn.cli.top.view import Pane, TopView, Wish, arranged, pressed
from shared.background import end_tasks
from shared.errors import PipelineError
from shared.finding import counted
from shared.operating.audit import Action, audited
from shared.operating.keys import stop_key
from shared.pipeline import Pipeline
from shared.reading.conversation_query import parse_query
from shared.reading.mailbox import KeyInJournal, mailbox_of
from shared.reading.waiting_reason import waiting_reason


async def watch(pipe: Pipeline, filter: str, every: float) -> None:
    """Show the deployment until `q`, Ctrl-C or SIGTERM; the terminal is left as it was."""
    console = Console(highlight=False)
    with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        screen = _Screen(pipe, live, TopView(filter=filter), every)
        with keyboard(sys.stdin.fileno(), screen.hear):
            await screen.run()


class _Screen:
    def __init__(self, pipe: Pipeline, live: Live, view: TopView, every: float) -> None:
        self._pipe = pipe
        self._live = live
        self._view = view
        self._every = every
        self._seen: TopLook | None = None
        self._detail: Mapping[str, object] = {}
        self._ended = asyncio.Event()
        self._look_now = asyncio.Event()
        self._acting: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._ended.set)
        self._draw()  # before the first answer: servers may take their time
        looking = asyncio.create_task(self._keep_looking())
        looking.add_done_callback(lambda _: self._ended.set())
        try:
            await self._ended.wait()
        finally:
            await end_tasks(looking, *self._acting)
        if not looking.cancelled():
            looking.result()  # it never returns: an error that nobody foresaw

    def hear(self, key: str) -> None:
        rows = arranged(self._view, self._seen.conversations) if self._seen is not None else []
        self._view, wish = pressed(self._view, key, rows)
        if wish is Wish.QUIT:
            self._ended.set()
        elif wish is Wish.LOOK:
            self._look_now.set()
        elif wish is not Wish.NOTHING and self._view.selected is not None:
            self._detail = {}
            task = asyncio.create_task(self._act(wish, self._view.selected))
            self._acting.add(task)
            task.add_done_callback(self._acting.discard)
        self._draw()

    async def _keep_looking(self) -> None:
        while True:
            if not self._view.paused or self._look_now.is_set() or self._seen is None:
                self._look_now.clear()
                self._seen = await look(self._pipe, parse_query(self._view.filter))
                if self._view.pane is Pane.DETAIL and self._view.selected is not None:
                    await self._act(Wish.DETAIL, self._view.selected)
                self._draw()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await self._look_now.wait()

    async def _act(self, wish: Wish, key: str) -> None:
        try:
            if wish is Wish.STOP:
                stopping = Action("stop key", key)
                stopped = await audited(self._pipe.store, operator(), stopping, lambda: stop_key(self._pipe, key))
                self._view = replace(
                    self._view, note=f"stopped: {counted(stopped.messages, 'message gets', 'messages get')} no answer"
                )
                self._look_now.set()
            else:
                self._detail = await self._described(key)
        except (PipelineError, redis.RedisError) as error:
            self._view = replace(self._view, note=str(error))
            self._detail = {"": str(error)}
        self._draw()

    async def _described(self, key: str) -> dict[str, object]:
        found = await mailbox_of(self._pipe, key)
        alive = self._seen.status.workers_alive if self._seen is not None else None
        pending = found.journal.pending if isinstance(found.journal, KeyInJournal) else 0
        mail = ", ".join(f"{entry.seq} {entry.id}" for entry in found.mail) or None
        return {
            "why": waiting_reason(found.state, pending, alive),
            "state": found.state.state.value,
            "until": found.state.until,
            "worker": found.state.worker,
            "attempts": found.state.attempts,
            "waiting": max(found.state.waiting, pending),
            "mail": mail,
            "queue": found.queue,
            "more": f"keyturn keys show {key}",
        }

    def _draw(self) -> None:
        size = self._live.console.size
        self._live.update(frame(self._seen, self._view, self._detail, Size(size.width, size.height)), refresh=True)
