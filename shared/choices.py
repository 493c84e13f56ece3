"""The choices of a question as buttons: what a reply carries, and what comes back when one is pressed.

A button's data is the command that a person could type instead. It names its question by the question's id, holds no secret and
no words of anybody's, and is refused here if it is anything else: a forged press can do no more than a typed command.
"""

from __future__ import annotations

import re

from shared.value import value

DATA_BYTES = 64  # the longest data that every platform with buttons takes
_ASK = r"ask_([0-9a-f]{32})_([0-9]{3})"
_ASK_ID = re.compile(_ASK, re.ASCII)
_DATA = re.compile(rf"/(?:(?:approve|deny) {_ASK}|answer {_ASK} [1-9][0-9]{{0,2}})", re.ASCII)


@value
class Choice:
    """One button: the words on it, and the command that pressing it gives."""

    label: str
    command: str


def ask_id(turn_id: str, place: int) -> str:
    """The id of a question: it follows from the turn that asks it, and from its place among the questions of that turn."""
    return f"ask_{turn_id.removeprefix('turn_')}_{place:03}"


def is_ask_id(text: str) -> bool:
    return _ASK_ID.fullmatch(text) is not None


def turn_of(ask: str) -> str:
    """The turn that asked a question."""
    return f"turn_{ask.removeprefix('ask_').rpartition('_')[0]}"


def pressed(data: object) -> str | None:
    """The command that a pressed button gives; None where the data is none of our buttons'."""
    return data if isinstance(data, str) and _DATA.fullmatch(data) is not None else None
