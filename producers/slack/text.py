"""A Slack text as people read it. What Slack writes between angle brackets becomes words, and its three escapes characters."""

from __future__ import annotations

import re
from functools import lru_cache

from shared.codec import storable
from shared.value import value

_TOKEN = re.compile(r"<([^<>\s][^<>\n]*)>")
_SUBTEAM = "subteam^"


@value
class SlackSaid:
    """A text without the mentions of the bot: `<@UBOT> hello` is "hello"."""

    text: str
    mentioned: bool


def readable(raw: str, bot_user: str) -> SlackSaid:
    """The words of a message, and whether they mention the bot."""
    if "<" not in raw and "&" not in raw:  # nothing but words, as most texts are
        return SlackSaid(storable(raw.strip()), mentioned=False)
    leading, elsewhere = _mentions_of(bot_user)
    rest = leading.sub("", raw)
    words, more = elsewhere.subn("", rest)
    pieces, at = [], 0
    for found in _TOKEN.finditer(words):
        target, _, label = found[1].partition("|")
        pieces += [words[at : found.start()], _word(target, label)]
        at = found.end()
    said = "".join([*pieces, words[at:]]).strip()
    return SlackSaid(storable(_unescaped(said)), mentioned=bool(more) or rest != raw)


@lru_cache(maxsize=16)  # one bot, or a few
def _mentions_of(user: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Mentions at the beginning, with what sets them off from the rest; and those further on."""
    mention = rf"<@{re.escape(user)}(?:\|[^<>\n]*)?>"
    return re.compile(rf"\A\s*(?:{mention}[\s,:]*)+"), re.compile(rf"[ ]?{mention}")


def _word(target: str, label: str) -> str:
    """What people see in place of `<target|label>`."""
    if target.startswith(("@", "#")):
        return target[0] + (label or target[1:])
    if target.startswith("!"):
        special = target[1:].removeprefix(_SUBTEAM).partition("^")[0]
        return label if label else f"@{special}"
    address = target.removeprefix("mailto:")
    if not label or not address:
        return label or address
    return label if label in address else f"{label} ({address})"


def _unescaped(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
