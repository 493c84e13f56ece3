"""Arguments of a call as a person is to read them before they say yes: exactly what would run, whatever shows it.

They stand in a code block, so that no platform takes a star or a bracket for markup. Two backticks or more in a row are written as JSON
escapes, as is every character that cannot be seen, or that turns the direction of the text around it.
"""

from __future__ import annotations

import re
import unicodedata

FENCE = "```"
_BACKTICKS = re.compile("``+")
_ODD = re.compile(r"[^\n -~]")  # neither a line's end nor printable ASCII
_UNSEEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})  # categories of Unicode
_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")  # letters and marks that show nothing
_SELECTORS = (
    range(0x180B, 0x1810),
    range(0xFE00, 0xFE10),
    range(0xE0100, 0xE01F0),
)  # of variants; they show nothing either


def code_block(written: str) -> str:
    """A code block with the arguments that a model wrote as JSON. As JSON it says the same."""
    shown = _ODD.sub(lambda found: _seen(found[0]), written)
    shown = _BACKTICKS.sub(lambda found: "\\u0060" * len(found[0]), shown)
    return f"{FENCE}\n{shown}\n{FENCE}"


def _seen(character: str) -> str:
    is_seen = unicodedata.category(character) not in _UNSEEN and character not in _BLANKS
    if is_seen and not any(ord(character) in selectors for selectors in _SELECTORS):
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[n]:02x}{units[n + 1]:02x}" for n in range(0, len(units), 2))
