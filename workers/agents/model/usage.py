"""What a request cost, in the form of a row's `usage` mark (see workers/agents/llm.py)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from shared.codec import encode_text
from shared.context.tokens import estimate, row_tokens
from workers.agents.heard import PARTIAL
from workers.agents.model.contract import Prompt
from workers.agents.model.prices import Tokens

ESTIMATED = "estimated"


def usage_of(model: str, tokens: Tokens, cost: Decimal | None) -> dict[str, Any]:
    """The usage of one request that its provider counted."""
    counted = {
        "input": tokens.input,
        "output": tokens.output,
        "cache_read": tokens.cache_read,
        "cache_write": tokens.cache_write,
        "total": tokens.input + tokens.output,
        "prompt": tokens.input,
    }
    priced = {"cost": "unknown"} if cost is None else {"cost": "estimated", "cost_usd": f"{cost:f}"}
    return {"model": model, "requests": 1, **counted, **priced}


def estimated(model: str, prompt: Prompt, said: str = "") -> dict[str, Any]:
    """The usage of a request that nobody counted: a guess on the high side, and never zero."""
    tools = sum(estimate(encode_text(dict(tool.schema))) + estimate(tool.description) for tool in prompt.tools)
    asked = estimate(prompt.instructions) + tools + sum(map(row_tokens, prompt.rows))
    return {**usage_of(model, Tokens(max(asked, 1), max(estimate(said), 1)), None), ESTIMATED: True}


def begun(model: str, prompt: Prompt) -> dict[str, Any]:
    """The usage of a request whose answer has begun. It counts if the answer never ends."""
    return {**estimated(model, prompt), PARTIAL: True}
