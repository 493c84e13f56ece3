"""How ids stand in the text forms of keys, destinations and owners. All of them escape alike, so that an id has one
spelling and never looks like a border between two ids."""

from __future__ import annotations

from urllib.parse import quote, unquote

from shared.errors import Malformed

SAFE = "-_.~@+!,;"  # readable, and meaning nothing to us, to Redis patterns or to URLs


def escape(id: str) -> str:
    """The id in ASCII letters, digits, SAFE and %XX."""
    return quote(id, safe=SAFE)


def unescape(text: str) -> str:
    """The id that `escape` made this text of; Malformed where that can be none."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise Malformed("not an escaped id") from None


def bot_text(platform: str, account: str) -> str:
    """One of our bots on a platform: `irc`, or `irc@second` where there are several."""
    return f"{platform}@{escape(account)}" if account else platform


def parse_bot(text: str) -> tuple[str, str]:
    """Platform and account of a bot's text."""
    platform, _, account = text.partition("@")
    return platform, unescape(account)
