"""What a text is found by: pieces of its words. Made here, so that both databases find the same, in every script.

| of | grams |
|---|---|
| a word | every three letters in a row, and `^` with its first two letters, for questions that are shorter |
| Chinese, Japanese, Korean | every character, and every two in a row: words there are short and not set apart |
| an owner | `@` with a hash: the index keeps people apart before anything is compared |

Grams only choose candidates. Whether a text contains what was asked for is decided by looking at the text.
"""

from __future__ import annotations

import re
import unicodedata
from hashlib import blake2b
from itertools import pairwise

TEXT_LIMIT = 50_000  # characters of a row that can be found; what follows is a file rather than words
_CJK = (
    "\u1100-\u11ff\u3005-\u3007\u3040-\u318f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
_MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u065f\u0900-\u109f\u1780-\u17ff"  # parts of words that are no letters
_RUN = re.compile(rf"([{_CJK}]+)|((?:[^\W{_CJK}]|[{_MARKS}])+)")


def folded(text: str) -> str:
    """Text as it is compared: neither case, width nor the kind of white space matters."""
    plain = text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    return " ".join(plain.split())


def grams_of(text: str) -> set[str]:
    """All that a text is found by."""
    found: set[str] = set()
    for cjk, word in set(_RUN.findall(folded(text[:TEXT_LIMIT]))):
        if cjk:
            found.update(cjk, map("".join, pairwise(cjk)))
        else:
            found.add("^" + word[:2])
            found.update(word[at : at + 3] for at in range(len(word) - 2))
    return found


def grams_for(term: str) -> set[str]:
    """What every text has that contains the (folded) term. Empty: the term has no letters."""
    found: set[str] = set()
    short: set[str] = set()
    for cjk, word in _RUN.findall(term):
        if cjk:
            found.update(map("".join, pairwise(cjk)) if len(cjk) > 1 else cjk)
        elif len(word) > 2:
            found.update(word[at : at + 3] for at in range(len(word) - 2))
        else:
            short.add("^" + word)
    return found or short


def owner_gram(owner: str) -> str:
    """The gram that every indexed row of an owner has."""
    return "@" + blake2b(owner.encode(), digest_size=8).hexdigest()
