"""What hermes' sessions have cost. It keeps sums: of each model in newer versions, of the session in older ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any

from keyturn.importing.conversation import Used
from keyturn.importing.hermes.entries import text_of
from keyturn.importing.rows import time_of
from shared.store.usage import day_of

_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "api_call_count")


def used_by(
    session: Mapping[str, Any], by_model: Sequence[Mapping[str, Any]], entry: Mapping[str, Any], started: int
) -> tuple[Used, ...]:
    """By the models where they are told apart, else by the session's row, else by its line of the index."""
    sums = next((known for known in (by_model, (session,), (entry,)) if any(map(_has_spent, known))), ())
    found: dict[tuple[str, str], Used] = {}
    for row in filter(_has_spent, sums):
        used = _used(row, started)
        known = found.get((used.model, used.day))
        found[used.model, used.day] = _sum(known, used) if known is not None else used
    last_prompt = _count(entry.get("last_prompt_tokens"))
    if not last_prompt:
        return tuple(found.values())
    *others, last = found.values() or [Used(text_of(session.get("model")) or "", day_of(started))]
    return (*others, replace(last, last_prompt=last_prompt))


def _used(row: Mapping[str, Any], started: int) -> Used:
    read, written = _count(row.get("cache_read_tokens")), _count(row.get("cache_write_tokens"))
    return Used(
        model=text_of(row.get("model")) or "",
        day=day_of(time_of(row.get("first_seen")) or started),
        requests=_count(row.get("api_call_count")) or 1,
        input=_count(row.get("input_tokens")) + read + written,
        output=_count(row.get("output_tokens")),
        cache_read=read,
        cache_write=written,
        cost_usd=_cost(row),
    )


def _sum(a: Used, b: Used) -> Used:
    cost = None if a.cost_usd is None and b.cost_usd is None else (a.cost_usd or 0) + (b.cost_usd or Decimal(0))
    return Used(
        a.model,
        a.day,
        a.requests + b.requests,
        a.input + b.input,
        a.output + b.output,
        a.cache_read + b.cache_read,
        a.cache_write + b.cache_write,
        cost,
    )


def _has_spent(row: Mapping[str, Any]) -> bool:
    return any(_count(row.get(name)) for name in _COUNTS)


def _cost(row: Mapping[str, Any]) -> Decimal | None:
    """What was paid if that is known, else what it was thought to cost."""
    if row.get("cost_status") in (None, "unknown") and not row.get("actual_cost_usd"):
        return None
    try:
        cost = Decimal(str(row.get("actual_cost_usd") or row.get("estimated_cost_usd") or 0))
    except InvalidOperation:
        return None
    return cost if cost.is_finite() and 0 <= cost < 10**6 else None


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**50 else 0
