"""Who said what, where several people share one session: `[Alice·7f3a9c] hello`.

Neither a name nor a text can pass for another sender. A name keeps no bracket, no dot of that kind and no second line, and
carries a mark of the platform's id, so that another Alice is another sender. Every further line of a text is indented, so
only what this module wrote stands at the beginning of a line. What was rendered can be parsed back exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b

from shared.context.labels import inert
from shared.errors import Malformed
from shared.session_key import SessionKey
from shared.value import value

NAME_LIMIT = 64
NOBODY = "someone"
BACKFILL_HEAD = "Earlier in this channel, not addressed to you:"
NEW_MESSAGE = "New message:"
_INDENT = "  "
_BREAK = "\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]"
_FOLD, _UNFOLD = re.compile(f"({_BREAK})"), re.compile(f"({_BREAK}){_INDENT}")
_SAID = re.compile(r"\[([^\[\]·\n]+)(?:·([0-9a-f]{6}))?\] (.*)", re.DOTALL)
_RESERVED = str.maketrans({"[": "(", "]": ")", "［": "(", "］": ")", "【": "(", "】": ")", "·": "."})


@value
class Sender:
    """Who speaks, as the model is told: a name fit to be shown and, where the platform gave an id, its mark."""

    name: str
    mark: str = ""

    @classmethod
    def of(cls, name: str | None, id: str | None, key: bytes = b"") -> Sender:
        """`key` makes the marks of one deployment meaningless to everybody else."""
        shown = inert(name or "", NAME_LIMIT).translate(_RESERVED) or NOBODY
        return cls(shown, blake2b(id.encode(errors="surrogatepass"), digest_size=3, key=key).hexdigest() if id else "")

    def __str__(self) -> str:
        return f"{self.name}·{self.mark}" if self.mark else self.name


@value
class Said:
    sender: Sender
    text: str


def is_shared(key: SessionKey) -> bool:
    """Whether several people may speak in this session."""
    return key.chat_type != "dm" and key.user is None and key.user_alt is None


def render(said: Said) -> str:
    """One message. Its first line begins with the sender, all others with two spaces."""
    return f"[{said.sender}] {_folded(said.text)}"


def render_all(messages: Iterable[Said]) -> str:
    """Several messages, one after another."""
    return "\n".join(map(render, messages))


def render_with_backfill(said: Said, earlier: str) -> str:
    """A message after what the channel said before it. The earlier block has no sender and cannot look like it had one."""
    return f"{BACKFILL_HEAD}\n{_INDENT}{_folded(earlier)}\n{NEW_MESSAGE}\n{render(said)}"


def parse(rendered: str) -> list[Said]:
    """The messages that `render_all` was given; Malformed for anything it could not have written."""
    if not rendered:
        return []
    found = []
    for block in re.split(rf"\n(?!{_INDENT})", rendered):
        match = _SAID.fullmatch(block)
        if match is None:
            raise Malformed("a line begins with no sender")
        name, mark, text = match.groups()
        found.append(Said(Sender(name, mark or ""), _UNFOLD.sub(r"\1", text)))
    return found


def _folded(text: str) -> str:
    return _FOLD.sub(rf"\1{_INDENT}", text)
