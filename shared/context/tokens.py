"""How many tokens something is, about. No tokenizer: each model has another, and the budget only needs a safe guess."""

from __future__ import annotations

from typing import Any

from shared.codec import encode_text
from shared.context.marks import BLOCKS, NAME, PICTURES, REASONING, THINKING, TOOL_CALLS, is_text_block
from shared.messages import Entry

PER_ROW = 4  # what the roles and separators of a row take
CHARACTERS_PER_TOKEN = 3  # of ASCII; English prose has four and more, code and numbers about three
RESERVE = 1024  # for what neither side counts: tool schemas, the provider's own framing
LEAST = 128
PER_FILE = 1500  # about what providers count for a picture; its bytes say nothing


def estimate(text: str) -> int:
    """A guess on the high side: other scripts count as a token per character."""
    ascii_characters = len(text.encode("ascii", "ignore"))
    return -(-ascii_characters // CHARACTERS_PER_TOKEN) + len(text) - ascii_characters


def row_tokens(entry: Entry) -> int:
    """Text or content blocks, names, tool calls and reasoning of a row."""
    data = entry.data
    calls = encode_text(data[TOOL_CALLS]) if data.get(TOOL_CALLS) else ""
    thought = encode_text(data[THINKING]) if data.get(THINKING) else data.get(REASONING) or ""
    said = sum(map(_block_tokens, data[BLOCKS])) if data.get(BLOCKS) else estimate(entry.text)
    said += PER_FILE * len(data.get(PICTURES) or ())
    return PER_ROW + said + sum(map(estimate, (data.get(NAME) or "", calls, thought)))


def _block_tokens(block: Any) -> int:
    return estimate(block["text"]) if is_text_block(block) else PER_FILE


def replay_budget(context_window: int, max_output: int) -> int:
    """What history may take of a context window; half of it where the rest would be nothing."""
    left = context_window - max_output - RESERVE
    return left if left >= LEAST else max(LEAST, context_window // 2)
