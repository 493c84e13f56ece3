"""Reads back what `shared/context/shared_thread.py` renders: proof that no name and no text can pass for another sender."""

from __future__ import annotations

import re

from shared.context.shared_thread import NamedSender, SaidInThread
from shared.errors import Malformed

_INDENT = "  "
_BREAK = "\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]"
_UNFOLD = re.compile(f"({_BREAK}){_INDENT}")
_SAID = re.compile(r"\[([^\[\]·\n]+)(?:·([0-9a-f]{12}))?\] (.*)", re.DOTALL)


def parse(rendered: str) -> list[SaidInThread]:
    """The messages that `render_all` was given; Malformed for anything it could not have written."""
    if not rendered:
        return []
    found = []
    for block in re.split(rf"\n(?!{_INDENT})", rendered):
        match = _SAID.fullmatch(block)
        if match is None:
            raise Malformed("a line begins with no sender")
        name, mark, text = match.groups()
        found.append(SaidInThread(NamedSender(name, mark or ""), _UNFOLD.sub(r"\1", text)))
    return found
