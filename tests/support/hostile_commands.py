"""Commands as somebody would send them who wants to break something, the same ones for the same random numbers."""

from __future__ import annotations

import random

from workers.commands import REGISTRY

NUMBERS = (
    "0",
    "-1",
    "--5",
    "1",
    "2",
    "3",
    "99999999999999999999",
    "1e999",
    "0x10",
    "٣",
    "²",
    "１２",
    "-0",
    "+7",
    "1.5",
)
WORDS = (
    "",
    " ",
    "hello",
    "all",
    "search",
    "search %",
    "search _",
    "forget",
    "forget all",
    "off",
    "%",
    "\\",
    "'; DROP TABLE sessions; --",
    '"quoted"',
    "*",
    "NEAR(",
    "a AND",
    "<b>bold</b>",
    "agent:main:webhook:dm:flood0",
    "ses_",
    "\u202egnirts",
    "\x1b[31mred",
    "数据库",
    "👩‍👩‍👧‍👦",
    "line\nbreak",
    "tab\there",
)


def hostile_arguments(rng: random.Random) -> str:
    """Numbers out of range, quotes and wildcards of every language on the way, words of thousands of letters."""
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice(NUMBERS)
    if kind == 1:
        return rng.choice(WORDS)
    if kind == 2:
        return rng.choice(WORDS) + " " + rng.choice(NUMBERS)
    if kind == 3:
        return rng.choice(("9", "a", "(", "%", "字", "-", "\\")) * rng.choice((300, 5_000, 20_000))
    if kind == 4:
        return " ".join(rng.choice(WORDS + NUMBERS) for _ in range(rng.randrange(40)))
    return "".join(
        chr(rng.choice((rng.randrange(32, 127), rng.randrange(0xA0, 0xD7FF)))) for _ in range(rng.randrange(200))
    )


def hostile_command(rng: random.Random) -> str:
    """A command, a misspelt one now and then, with arguments that it may or may not take."""
    name = rng.choice(sorted(REGISTRY)) if rng.random() < 0.95 else "nosuch"
    return f"/{name} {hostile_arguments(rng)}".rstrip()
