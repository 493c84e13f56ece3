"""Automatic titles: after the first answered turn of a session, aside, so that no reply and no commit waits for it.

A model that can be asked is asked once. Where there is none, or it fails, the first words of the first message serve. A
crash before the title is there leaves the session without one; nothing else depends on it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from shared import log
from shared.background import end_tasks
from shared.context.marks import is_user
from shared.context.title import LENGTH, first_words
from shared.messages import Entry, Inbound, Session
from shared.pipeline import Pipeline
from shared.store.usage import Whose
from workers.agents.capabilities import Asks
from workers.side.budget import Budgets
from workers.side.questions import ask_aside

AT_ONCE = 4  # questions: the model is the turns' first
MOST = 100  # titles under way: where more are wanted, the first words serve, and no question waits
BEGINNING = 20  # rows: beyond them, somebody has said something, and the window need not be looked at
PATIENCE_SECONDS = 60.0
SHOWN = 2000  # characters of each row that the model gets
PROMPT = (
    "Give this conversation a title of at most six words, in its own language. Answer with the title and nothing else."
)
_THOUGHT = re.compile(
    r"<(think|thinking|thought|reasoning|reflection)\b[^>]*>.*?(?:</\1\s*>|\Z)", re.IGNORECASE | re.DOTALL
)
_TAG = re.compile(r"</?[a-z][^>]*>", re.IGNORECASE)
_AROUND = "#*_\"'“”„«»` "
_LABEL = re.compile(r"^(?:title|titel|titre|título|标题)\s*[:：]\s*", re.IGNORECASE)


class Titling:
    """Gives sessions titles beside their turns: no turn waits for one, and a question that fails costs nothing else."""

    def __init__(self, pipe: Pipeline, asks: Asks | None, budgets: Budgets | None = None) -> None:
        self._pipe = pipe
        self._budgets = budgets
        self._asks = asks
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def with_commit(self, session: Session, inbound: Inbound) -> str | None:
        """A title that costs nothing: for a session that this commit opens, where no model is to be asked or too many are
        asked already."""
        asks = self._asks is not None and len(self._tasks) < MOST
        return first_words(inbound.text) or None if session.version == 0 and not asks else None

    def after(self, session: Session, whose: Callable[[], Whose], said: Entry, answer: Entry | None) -> None:
        """The turn was answered, and its commit gave no title: title the session aside if that was its first turn, unless
        too many are under way. `session` is as it was before the turn."""
        if len(self._tasks) >= MOST or session.message_count > BEGINNING:
            return
        if any(map(is_user, session.history)):
            return
        task = asyncio.create_task(self._give(whose(), said, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """A title that is not there by now will not come."""
        await end_tasks(*self._tasks)

    async def _give(self, whose: Whose, said: Entry, answer: Entry | None) -> None:
        try:
            title = await self._asked(whose, said, answer) or first_words(said.text)
            if title:
                await self._pipe.store.titles.suggest(whose.session_id, title)
        except Exception as error:  # nobody waits for it, and nothing depends on it
            log.get().warning("no title", session=whose.session_id, error=type(error).__name__)

    async def _asked(self, whose: Whose, said: Entry, answer: Entry | None) -> str:
        if self._asks is None:
            return ""
        rows = [Entry(row.role, row.text[:SHOWN]) for row in (said, answer) if row is not None and row.text]
        rows.append(Entry("user", PROMPT))
        try:
            async with self._slots, asyncio.timeout(PATIENCE_SECONDS):
                found = await ask_aside(self._pipe, self._asks, rows, PROMPT, whose, self._budgets)
        except Exception as error:
            log.get().warning("the model gave no title", session=whose.session_id, error=type(error).__name__)
            return ""
        return cleaned(found.text)


def cleaned(text: str) -> str:
    """A title from what a model said: no thoughts, no tags, no quotes, one short line. Empty where nothing is left."""
    text = _TAG.sub("", _THOUGHT.sub("", text))
    lines = [line for part in text.splitlines() if (line := " ".join(part.split()).strip(_AROUND))]
    line = _LABEL.sub("", lines[0]).strip(_AROUND) if lines else ""
    line = "".join(char for char in line if char.isprintable())
    return line if len(line) <= LENGTH else line[: LENGTH - 1].rstrip() + "…"
