"""The prompts of one turn: instructions, the window of its history, its mail, and what the turn itself has added so far.

Only what is new is at the end: instructions, tools and earlier rows are the same bytes from request to request and from turn
to turn, so that providers find them in their cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import tzinfo

from shared.agent.turn import Turn
from shared.context.history import window
from shared.context.marks import BLOCKS, PICTURES, THINKING, user_row
from shared.context.memory import remembered
from shared.context.shared_thread import is_shared, signed
from shared.context.tokens import estimate, replay_budget, row_tokens
from shared.messages import Entry, Inbound
from shared.session_key import SessionKey
from workers.agents.model.attachments import Attachments
from workers.agents.model.contract import Prompt, ToolSpec

SHORT_RESULT = 2000  # characters of a tool's result that are shown once a provider said that all of it is too much
CUT_RESULT = "\n[cut: the rest did not fit into the conversation]"
PROVIDERS_OWN = (BLOCKS, THINKING, PICTURES)  # marks in a form that only some providers read


class ModelConversation:
    """What a model is shown in a turn. It can be made smaller once when the provider says that it is too much."""

    def __init__(
        self,
        turn: Turn,
        system_prompt: str,
        tools: tuple[ToolSpec, ...] = (),
        *,
        room: tuple[int, int] | None = None,
        times_in: tzinfo | None = None,
        attachments: Attachments | None = None,
    ) -> None:
        """`room`: how many tokens the model reads at once, and how many of them are kept for its answer."""
        entries = (*turn.history, *map(user_row, turn.mail))
        if attachments:
            entries = tuple([attachments.on(entry) for entry in entries])
        self._is_shared = is_shared(SessionKey.parse(turn.session_key))
        if self._is_shared:
            entries = tuple([signed(entry, turn.sender_key) for entry in entries])
        self._turn = turn
        self._entries = entries
        self._tools = tools
        self._told = "\n\n".join(
            filter(None, (system_prompt, turn.instructions, remembered(turn.memory), turn.context))
        )
        self._budget: int | None = None
        self.fit(room)
        self._times_in = times_in
        self._cap = 0
        self._is_short = False
        self._is_text_only = False
        self._shown: tuple[Entry, ...] = ()

    def fit(self, room: tuple[int, int] | None) -> None:
        """From now on the prompts are for a model with this room."""
        self._budget = replay_budget(room[0], room[1] + estimate(self._told)) if room is not None else None

    def prompt(self, own: Sequence[Entry] = ()) -> Prompt:
        """The next request. `own` are the rows that this turn has added."""
        at_least = len(self._turn.mail)
        added = window((*self._entries[-at_least:], *own), times_in=self._times_in)[at_least:] if own else ()
        budget = self._budget
        if budget is not None:
            budget = max(budget - sum(map(row_tokens, added)), 1)
        self._shown = window(self._entries, cap=self._cap, budget=budget, at_least=at_least, times_in=self._times_in)
        rows = (*self._noted(), *(map(_cut, added) if self._is_short else added))
        return Prompt([*map(_text_only, rows)] if self._is_text_only else rows, self._told, self._tools)

    def said(self, inbound: Inbound) -> Entry:
        """What came in while the turn ran, as a row for `prompt`. Of its files the model reads the names."""
        row = user_row(inbound)
        return signed(row, self._turn.sender_key) if self._is_shared else row

    def shorten(self, own: Sequence[Entry]) -> bool:
        """From now on half of the history that was shown, and the beginnings of what tools have told this turn. False where
        that was done before, or would change nothing. `own` are the rows that this turn has added."""
        has_history = len(self._shown) > len(self._turn.mail)
        if self._is_short or not (has_history or any(_cut(row) is not row for row in own)):
            return False
        self._is_short = True
        if has_history:
            self._cap = max(len(self._shown) // 2, 1)
        return True

    def leave_out_blocks(self) -> bool:
        """From now on text alone, without pictures and thoughts: the provider may be another than theirs. False where there
        were none."""
        if self._is_text_only or not any(mark in row.data for mark in PROVIDERS_OWN for row in self._shown):
            return False
        self._is_text_only = True
        return True

    def _noted(self) -> Sequence[Entry]:
        """The rows with what the model is told beside the mail, just before it. It comes from us and not from the user."""
        rows, turn = self._shown, self._turn
        if not turn.notes:
            return rows
        at = max(len(rows) - len(turn.mail), 0)
        return (*rows[:at], *(Entry("user", f"[Note of the system: {note}]") for note in turn.notes), *rows[at:])


def _cut(row: Entry) -> Entry:
    if row.role != "tool" or len(row.text) <= SHORT_RESULT + len(CUT_RESULT):
        return row
    return replace(row, text=row.text[:SHORT_RESULT] + CUT_RESULT)


def _text_only(row: Entry) -> Entry:
    return replace(row, data={name: value for name, value in row.data.items() if name not in PROVIDERS_OWN})
