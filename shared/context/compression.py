"""Which rows of a conversation go into a summary, and when it is time: by tokens, never by the number of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shared.context.history import CONSOLIDATED_ROWS
from shared.context.legal import last_user
from shared.context.marks import COMMAND, SENDER, USAGE, is_proactive, is_user
from shared.context.replay import shown
from shared.context.shared_thread import NamedSender, SaidInThread, render_all
from shared.context.tokens import row_tokens
from shared.messages import Entry
from shared.value import value

DUE, STILL_FULL = 0.85, 0.95  # of the context window
ROW_CHARACTERS = 4000  # of a row, so much is given to be summarised


def last_prompt_tokens(history: Sequence[Entry]) -> int:
    """How much the model read for its last answer, by the provider's count; 0 where that is not known."""
    for entry in reversed(history):
        usage = entry.data.get(USAGE)
        if entry.role == "assistant" and isinstance(usage, dict):
            prompt = usage.get("prompt")
            return prompt if isinstance(prompt, int) else 0
    return 0


def is_due(prompt_tokens: int, context_tokens: int | None) -> bool:
    return context_tokens is not None and prompt_tokens >= DUE * context_tokens


def is_idle(last_active_ms: int, now_ms: int, idle_minutes: int) -> bool:
    """Whether nothing was said for so long. 0 minutes: never; so is what has no time."""
    return bool(idle_minutes and last_active_ms) and now_ms - last_active_ms >= idle_minutes * 60_000


def is_still_full(tokens: int, context_tokens: int | None) -> bool:
    return context_tokens is not None and tokens > STILL_FULL * context_tokens


def conversation(rows: Sequence[Entry]) -> list[Entry]:
    """The rows that a model is shown: no commands, nothing empty."""
    return [row for row in rows if shown(row) is not None]


def kept_from(rows: Sequence[Entry], *, turns: int | None = None, tokens: int | None = None) -> int:
    """Where the end begins that stays as it is: at a user's row, or at the proactive delivery that he answers.

    It has that many turns or, where none are asked for, about eight rows, and fewer if they take more than `tokens`.
    """
    starts = [n for n, row in enumerate(rows) if is_user(row)]
    if not starts:
        return len(rows)
    if turns is not None:
        start = starts[max(0, len(starts) - turns)] if turns else len(rows)
    else:
        start = _recent(rows, starts, tokens)
    return start - 1 if 0 < start < len(rows) and is_proactive(rows[start - 1]) else start


def _recent(rows: Sequence[Entry], starts: Sequence[int], tokens: int | None) -> int:
    count, spent, start = 0, 0, len(rows)
    while start and count < CONSOLIDATED_ROWS:
        row = rows[start - 1]
        if not row.data.get(COMMAND):
            count, spent = count + 1, spent + row_tokens(row)
            if tokens is not None and spent > tokens and count > 1:
                break
        start -= 1
    wider = max((n for n in starts if n <= start), default=starts[0])
    if tokens is None or sum(map(row_tokens, rows[wider:])) <= tokens:
        return wider
    return next((n for n in starts if n >= start), starts[-1])


@value
class Chunk:
    """Whole turns that are summarised at once. `end` is the place after their last row."""

    text: str
    end: int


def chunks(rows: Sequence[Entry], tokens: int) -> Iterator[Chunk]:
    """The rows as texts of about so many tokens each, cut between turns."""
    begun, start, spent = 0, 0, 0
    for end in [*(n for n, row in enumerate(rows) if n and is_user(row)), len(rows)]:
        cost = sum(min(row_tokens(row), ROW_CHARACTERS) for row in rows[start:end])
        if spent and spent + cost > tokens:
            yield Chunk(transcript(rows[begun:start]), start)
            begun, spent = start, 0
        start, spent = end, spent + cost
    if start > begun:
        yield Chunk(transcript(rows[begun:start]), start)


def transcript(rows: Sequence[Entry]) -> str:
    """The rows as one text in which none can pass for another."""
    said = []
    for row in conversation(rows):
        line = shown(row)
        assert line is not None
        who = row.data.get(SENDER) if row.role == "user" else None
        text = line.text if len(line.text) <= ROW_CHARACTERS else line.text[: ROW_CHARACTERS - 1] + "…"
        said.append(SaidInThread(NamedSender.of(who or row.role), text))
    return render_all(said)


def has_turn(rows: Sequence[Entry]) -> bool:
    return last_user(rows) is not None
