"""Asking a person before a tool runs. An answer counts for one call: its place in the run, its tool and its arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from fnmatch import fnmatchcase
from hashlib import blake2b

from shared.agent.events import Ask, Call
from shared.agent.turn import Said, Turn
from shared.codec import encode_json
from shared.schedules.schedule import is_unattended
from workers.agents.tools.ask_user import is_question, question_of
from workers.agents.tools.shown import code_block

SHOWN_CHARACTERS = 10_000  # of a call's arguments: a platform shows them in several messages
TOO_LONG = (
    f"Not run: a person has to approve this call, and its arguments are longer than the {SHOWN_CHARACTERS:,} characters that "
    "they can be shown. Make several smaller calls."
)
UNATTENDED = (
    "Not run: nobody can be asked in a scheduled turn. Go on without it, and say in your answer what was left out."
)
DENIED = "Not run: denied by the user."
NO_ANSWER = "Not run: denied, because nobody answered in time."


def names_no_tool(pattern: str, tools: Iterable[str], servers: Iterable[str]) -> bool:
    """Whether a name or pattern of LLM__APPROVE can mean none of the tools, and none of an MCP server, whose tools are known later."""
    fixed = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    later = [f"{server}__" for server in servers]
    if any(fixed.startswith(begins) or (fixed != pattern and begins.startswith(fixed)) for begins in later):
        return False
    return not any(fnmatchcase(tool, pattern) for tool in tools)


class Approval:
    """The approvals of one turn."""

    def __init__(self, turn: Turn, expires: timedelta) -> None:
        self._turn = turn
        self._expires = expires

    def question(self, call: Call, place: int) -> Ask:
        """What a person is asked about a call of the run's response with this number."""
        if is_question(call):
            return question_of(call, self._id(call, place), self._expires)
        text = f"May I run `{call.name}` with this?\n{code_block(call.arguments)}"
        return Ask(self._id(call, place), text, ("yes", "no"), self._expires, call)

    def unaskable(self, call: Call) -> str:
        """Why nobody can be asked about a call; empty: somebody can. People approve what they were shown whole."""
        if is_unattended(self._turn.mail[-1]):
            return UNATTENDED
        return TOO_LONG if len(call.arguments) > SHOWN_CHARACTERS and not is_question(call) else ""

    def answer(self, call: Call, place: int) -> Said | None:
        """What a person said to it; None: nobody has been asked about just this call."""
        return self._turn.answers.get(self._id(call, place))

    def _id(self, call: Call, place: int) -> str:
        """Follows from what is asked: no other call, and not the same call with other arguments, has it. The place is part
        of it, because call ids may repeat within a run."""
        about = encode_json([self._turn.run, place, call.id, call.name, call.arguments])
        return f"approve_{blake2b(about, digest_size=15).hexdigest()}"


def refusal(said: Said) -> str:
    """Why a call is left out after this answer; empty: it may run."""
    if said.is_expired:
        return NO_ANSWER
    return "" if said.choice == "yes" else DENIED
