"""The tool by which a model asks the user: the turn ends with the question, and the answer is the tool's result."""

from __future__ import annotations

from datetime import timedelta

from shared.agent.events import Ask, Call
from shared.agent.steps import NotRun
from shared.agent.turn import Said
from workers.agents.tools.tool import tool

UNANSWERED = "Nobody answered in time."


@tool(effect="read")
async def ask_user(question: str, choices: list[str] | None = None) -> str:
    """Ask the user something that you need to know before you go on. Give choices if only these answers make sense."""
    raise NotRun("Not run: the user was not asked.")


def is_question(call: Call) -> bool:
    return call.name == ask_user.name


def question_of(call: Call, id: str, expires: timedelta) -> Ask:
    """What the user is asked by a call whose arguments are right."""
    written = ask_user.arguments(call.arguments)
    choices = [choice for choice in written["choices"] or () if choice.strip()]
    return Ask(id, written["question"].strip() or "?", tuple(choices), expires)


def answer_of(said: Said) -> str:
    """What the model reads of the user's answer."""
    return UNANSWERED if said.is_expired else said.choice or said.text
