"""Texts that somebody may write to break a reader: every platform takes them in, and sends them."""

from __future__ import annotations

MANY = 10_000  # levels of what is nested
RUN = 2_000  # characters of what stands side by side
_RUNS = "*_~`|><[](){}#-+=!@&\\\"'/:;"  # what any platform's markup is made of
_MENTIONS = ("<@U0BOT>", "<@!1>", "<!channel>", '<at user_id="all"></at>', "@15550001111 ", "@helper_bot ", "<#C1|x>")


def _nested() -> dict[str, str]:
    lists = "\n".join(f"{' ' * (2 * (n % 200))}- x" for n in range(RUN // 10))
    return {
        "nested quotes": "> " * MANY + "x",
        "nested lists": "- " * MANY + "x",
        "indented lists": lists,
        "nested brackets": "[" * MANY + "x" + "]" * MANY,
        "nested parentheses": "(" * MANY + "x" + ")" * MANY,
        "nested links": "[x](" * (RUN // 4) + "https://x.org" + ")" * (RUN // 4),
        "nested marks": "*_~**__" * (RUN // 8) + "x" + "__**~_*" * (RUN // 8),
        "headings": "# " * (RUN // 2) + "x",
        "fences": "```x\n" * (RUN // 5),
    }


HOSTILE: dict[str, str] = {
    **{f"run of {mark}": mark * RUN for mark in _RUNS},
    **{f"words with {mark}": f"{mark}a " * (RUN // 3) for mark in "*_~`|<[@"},
    **{f"mentions {mention}": mention * (RUN // len(mention)) for mention in _MENTIONS},
    **_nested(),
    "control characters": "".join(map(chr, [*range(32), *range(0x7F, 0xA0)])) * 20,
    "direction marks": "\u202e\u2066\u2067\u2068\u202b\u200f\u061c txt.exe \u2069\u202c" * 100,
    "invisible characters": "\ufeff\u200b\u200d\u2060\u00ad\ufff9\ufffe\uffff\U000e0041" * 100,
    "combining characters": "a" + "\u0301" * RUN,
    "NUL": "a\0b" * 100,
}
# One of each kind, for places where every text would take too long.
SOME: tuple[str, ...] = (
    "".join(mark * 100 for mark in _RUNS),
    "".join(f"{mention} " * 20 for mention in _MENTIONS),
    *(HOSTILE[name] for name in ("nested quotes", "nested brackets", "control characters", "direction marks", "NUL")),
)
UNPAIRED = ("\ud800", "\udfff x", "x\udc00\ud800")  # only JSON can carry them, and no database can keep them
