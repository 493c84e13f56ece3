"""Prices are those of the public lists, whatever is kept of them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from workers.agents.model import prices
from workers.agents.model.prices import Tokens, listed, price

OPENAI = "https://api.openai.com/v1"
SERVERS = {
    "one price per kind": ("gpt-4o", OPENAI),
    "cached tokens are cheaper": ("gpt-4.1-mini", OPENAI),
    "writing to the cache costs more": ("claude-sonnet-4-0", "https://api.anthropic.com"),
    "long prompts cost more per token": ("gemini-2.5-pro", "https://generativelanguage.googleapis.com"),
    "by the time of day, or once was": ("deepseek-chat", "https://api.deepseek.com"),
    "a request costs something by itself": ("sonar", "https://api.perplexity.ai"),
}
USED = (
    Tokens(0, 0),
    Tokens(9, 50),
    Tokens(1_234, 567, 1_000),
    Tokens(5_000, 321, 1_000, 3_000),
    Tokens(150_000, 77_777),
    Tokens(250_001, 1, 200_003, 7),
    Tokens(10, 20, 30, 40),  # more from the cache than there was
)


@pytest.mark.parametrize("kind", SERVERS)
def test_what_is_multiplied_here_is_what_the_lists_say(kind: str) -> None:
    model, url = SERVERS[kind]
    for tokens in USED * 2:  # the second time with what was kept
        try:
            expected: Decimal | None = listed(model, tokens, url)
        except ValueError:
            expected = None
        assert price(model, tokens, url) == expected


def test_a_model_with_one_price_per_kind_is_asked_for_once_in_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = 1000.0, list[str]()
    monkeypatch.setattr(prices, "_kept", {})
    monkeypatch.setattr("workers.agents.model.prices.time.monotonic", lambda: now)
    monkeypatch.setattr(prices, "listed", lambda model, *given: asked.append(model) or listed(model, *given))  # type: ignore[func-returns-value]
    for _ in range(100):
        assert price("gpt-4o", Tokens(9, 50), OPENAI)
    assert len(asked) == 5
    now += prices.KEPT_SECONDS + 1
    assert price("gpt-4o", Tokens(9, 50), OPENAI) and len(asked) == 10


def test_servers_and_models_that_no_list_knows_have_no_price() -> None:
    assert price("gpt-4o", Tokens(1, 1), "http://127.0.0.1:8000/v1") is None
    assert price("no-such-model", Tokens(1, 1), OPENAI) is None
