"""README's table of platforms, written from shared/platforms by `./run docs`. A test keeps the table true."""

from __future__ import annotations

import re
from pathlib import Path

from shared.platforms import PLATFORMS
from shared.platforms.facts import Facts, Idempotency

README = Path(__file__).parents[1] / "README.md"
_PLACE = re.compile(r"(<!-- platforms -->\n).*?(<!-- end of platforms -->)", re.DOTALL)


def table() -> str:
    """One row for each platform: how messages come, and what replies can do there."""
    head = "| platform | messages come by | threads | edits | files in | files out | shown while written | buttons | typing sign | a repeated send is recognised |"
    rows = [_row(facts) for facts in PLATFORMS.values() if facts.receives or facts.listens]
    return "\n".join([head, "|---|---|:-:|:-:|:-:|:-:|:-:|:-:|:-:|:-:|", *rows]) + "\n"


def with_table(page: str) -> str:
    """The page with the table as it is now, between its two marks."""
    return _PLACE.sub(lambda found: found[1] + table() + found[2], page)


def _row(facts: Facts) -> str:
    ways = [way for way, is_there in (("HTTP request", facts.receives), ("held connection", facts.listens)) if is_there]
    has = (
        facts.can_thread,
        facts.can_edit,
        True,  # from the platform itself, or from the address that a message names
        facts.media is not None,
        facts.preview is not None,
        facts.buttons is not None,
        facts.typing_seconds is not None,
        facts.idempotency is Idempotency.NATIVE,
    )
    return f"| {facts.title} | {' or '.join(ways)} | " + " | ".join("yes" if one else "–" for one in has) + " |"


if __name__ == "__main__":
    README.write_text(with_table(README.read_text()))
