"""Who said what, where several people share one session: `[Alice·7f3a9c51d20b] hello`.

Neither a name nor a text can pass for another sender. A name keeps no bracket, no dot of that kind and no second line, and
carries a mark of the platform's id, so that another Alice is another sender. Every further line of a text is indented, so
only what this module wrote stands at the beginning of a line. What was rendered can be read back exactly
(tests/support/said.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b

from shared.context.labels import inert
from shared.context.marks import BLOCKS, SENDER, SENDER_ID, is_text_block, text_block
from shared.messages import Entry
from shared.session_key import SessionKey
from shared.value import value

NAME_LIMIT = 64
NOBODY = "someone"
_MARK_BYTES = 6
BACKFILL_HEAD = "Earlier in this chat, not addressed to you:"
NEW_MESSAGE = "New message:"
_INDENT = "  "
_BREAK = "\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]"
_FOLD = re.compile(f"({_BREAK})")
_RESERVED = str.maketrans({"[": "(", "]": ")", "［": "(", "］": ")", "【": "(", "】": ")", "·": "."})


@value
class NamedSender:
    """Who speaks, as the model is told: a name fit to be shown and, where the platform gave an id, its mark."""

    name: str
    mark: str = ""

    @classmethod
    def of(cls, name: str | None, id: str | None = None, key: str = "") -> NamedSender:
        """An id needs the deployment's key: without it, whoever chooses ids could look for one with another's mark."""
        shown = inert(name or "", NAME_LIMIT).translate(_RESERVED) or NOBODY
        if not id:
            return cls(shown)
        if not key:
            raise ValueError("the mark of a sender needs a key")
        return cls(
            shown, blake2b(id.encode(errors="surrogatepass"), digest_size=_MARK_BYTES, key=key.encode()).hexdigest()
        )

    def __str__(self) -> str:
        return f"{self.name}·{self.mark}" if self.mark else self.name


@value
class SaidInThread:
    """One message of a thread in which several people speak."""

    sender: NamedSender
    text: str


def is_shared(key: SessionKey) -> bool:
    """Whether several people may speak in this session."""
    return key.chat_type != "dm" and key.user is None and key.user_alt is None


def render(said: SaidInThread) -> str:
    """One message. Its first line begins with the sender, all others with two spaces."""
    return spoken(str(said.sender), said.text)


def spoken(sender: str, text: str) -> str:
    """The same for a sender that is text already."""
    return f"[{sender}] {_folded(text)}"


def signed(entry: Entry, key: str) -> Entry:
    """A user's row with its sender, as all rows of a shared session are shown. Other rows stay as they are."""
    if entry.role != "user":
        return entry
    text = render(SaidInThread(NamedSender.of(entry.data.get(SENDER), entry.data.get(SENDER_ID), key), entry.text))
    data = entry.data
    if BLOCKS in data:
        data = {**data, BLOCKS: [text_block(text), *(block for block in data[BLOCKS] if not is_text_block(block))]}
    return Entry(entry.role, text, entry.inbound_id, data)


def render_all(messages: Iterable[SaidInThread]) -> str:
    """Several messages, one after another."""
    return "\n".join(map(render, messages))


def after_earlier(earlier: str, message: str) -> str:
    """A message after what the chat said before it. The earlier block has no sender and cannot look like it had one."""
    return f"{BACKFILL_HEAD}\n{_INDENT}{_folded(earlier)}\n{NEW_MESSAGE}\n{message}"


def _folded(text: str) -> str:
    return _FOLD.sub(rf"\1{_INDENT}", text)
