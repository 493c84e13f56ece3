"""How much one turn may use of a model and of tools. A turn that reaches a limit ends with a plain reason."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from shared.context.marks import USAGE, calls
from shared.finding import counted
from shared.messages import Entry
from shared.value import value


@value
class TurnLimits:
    """What one turn may use."""

    requests: int = 20
    calls: int = 50
    tokens: float = math.inf
    seconds: float = math.inf
    cost_usd: float = math.inf


class Spending:
    """What one turn has used so far. `rows` are those of its earlier attempts: what they used counts, but for the time."""

    def __init__(self, limits: TurnLimits, rows: Sequence[Entry] = ()) -> None:
        self._limits = limits
        self._begun = time.monotonic()
        self._requests = self._calls = self._tokens = 0
        self._cost = Decimal(0)
        for row in rows:
            self._requests += row.role == "assistant"
            self._calls += len(calls(row))
            self.used(row.data.get(USAGE) or {})

    def before_request(self, *, is_granted: bool = False) -> str:
        """Why no further request may be made; empty where one may, and it counts then. At the limit of requests one more is
        granted for what the user said meanwhile."""
        limits = self._limits
        if self._requests >= limits.requests + is_granted:
            most = counted(limits.requests, "request to the model", "requests to the model")
            return f"I stopped: this took more than {most}, which is the limit for one message."
        if self._tokens >= limits.tokens:
            return f"I stopped: this took {self._tokens} tokens, and {limits.tokens:.0f} are the limit for one message."
        if self._cost >= limits.cost_usd:
            return f"I stopped: this cost {self._cost:.4f} US dollars, and {limits.cost_usd:g} are the limit for one message."
        if time.monotonic() - self._begun >= limits.seconds:
            return f"I stopped: this took longer than {limits.seconds:g} seconds, which is the limit for one message."
        self._requests += 1
        return ""

    def before_calls(self, count: int) -> str:
        """Why these tool calls may not be made; empty where they may, and they count then."""
        self._calls += count
        if self._calls <= self._limits.calls:
            return ""
        most = counted(self._limits.calls, "tool call", "tool calls")
        return f"I stopped: this took more than {most}, which is the limit for one message."

    def used(self, usage: Mapping[str, Any]) -> None:
        self._tokens += usage.get("total", 0)
        self._cost += Decimal(usage.get("cost_usd") or 0)  # a price that nobody knows counts as nothing
