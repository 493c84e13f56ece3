"""How many tokens something is, about. No tokenizer: each model has another, and the budget only needs a safe guess."""

from __future__ import annotations

from shared.codec import encode_text
from shared.context.marks import NAME, REASONING, TOOL_CALLS
from shared.messages import Entry

PER_ROW = 4  # what the roles and separators of a row take
CHARACTERS_PER_TOKEN = 3  # of ASCII; English prose has four and more, code and numbers about three
RESERVE = 1024  # for what neither side counts: tool schemas, the provider's own framing
LEAST = 128


def estimate(text: str) -> int:
    """A guess on the high side: other scripts count as a token per character."""
    ascii_characters = len(text.encode("ascii", "ignore"))
    return -(-ascii_characters // CHARACTERS_PER_TOKEN) + len(text) - ascii_characters


def row_tokens(entry: Entry) -> int:
    """Text, names, tool calls and reasoning of a row."""
    data = entry.data
    calls = encode_text(data[TOOL_CALLS]) if data.get(TOOL_CALLS) else ""
    return PER_ROW + sum(map(estimate, (entry.text, data.get(NAME) or "", calls, data.get(REASONING) or "")))


def replay_budget(context_window: int, max_output: int) -> int:
    """What history may take of a context window; half of it where the rest would be nothing."""
    left = context_window - max_output - RESERVE
    return left if left >= LEAST else max(LEAST, context_window // 2)
