"""What tokens cost by public price lists.

Asking genai-prices takes about 2 ms for a known model, as much as all the rest of a short turn. Most models have one price per
kind of token. Those are asked for once in a minute, because prices can depend on the time, and multiplied here.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from decimal import Decimal

from genai_prices import Usage, calc_price
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import TieredPrices

from shared.value import value

KEPT_SECONDS = 60.0
MANY = 10**6  # tokens that prices are asked for


@value
class Tokens:
    """The tokens of one request, as its provider counted them."""

    input: int
    output: int
    cache_read: int = 0
    cache_write: int = 0


@value
class Rates:
    """Prices of a million tokens of each kind, and of a request by itself. Cached tokens count among the input."""

    request: Decimal
    fresh: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal

    def cost(self, tokens: Tokens) -> Decimal:
        fresh = tokens.input - tokens.cache_read - tokens.cache_write
        spent = self.fresh * fresh + self.output * tokens.output
        spent += self.cache_read * tokens.cache_read + self.cache_write * tokens.cache_write
        return self.request + spent / MANY


_kept: dict[
    tuple[str, str], tuple[float, Rates | None]
] = {}  # until when they count as new; None: not one price per kind


def price(model: str, tokens: Tokens, url: str) -> Decimal | None:
    """What that costs in US dollars; None for servers and models that the lists do not know."""
    try:
        rates = _rates(model, url) if tokens.cache_read + tokens.cache_write <= tokens.input else None
        return rates.cost(tokens) if rates is not None else listed(model, tokens, url)
    except (LookupError, ValueError):
        return None


def listed(model: str, tokens: Tokens, url: str) -> Decimal:
    """The price as the lists have it."""
    used = Usage(
        input_tokens=tokens.input,
        output_tokens=tokens.output,
        cache_read_tokens=tokens.cache_read,
        cache_write_tokens=tokens.cache_write,
    )
    return calc_price(used, model, provider_api_url=url).total_price


def _rates(model: str, url: str) -> Rates | None:
    """The prices by kind; None where they depend on how many tokens a request has."""
    known = _kept.get((model, url))
    if known is None or time.monotonic() > known[0]:
        known = _kept[model, url] = time.monotonic() + KEPT_SECONDS, _asked(model, url)
    return known[1]


def _asked(model: str, url: str) -> Rates | None:
    _, about = get_snapshot().find_provider_model(model, None, None, url)
    if any(isinstance(of_kind, TieredPrices) for of_kind in vars(about.get_prices(datetime.now(UTC))).values()):
        return None
    request = listed(model, Tokens(0, 0), url)
    kinds = (Tokens(MANY, 0), Tokens(0, MANY), Tokens(MANY, 0, MANY), Tokens(MANY, 0, 0, MANY))
    return Rates(request, *(listed(model, tokens, url) - request for tokens in kinds))
