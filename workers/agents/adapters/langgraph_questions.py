"""Questions of a LangGraph graph: `interrupt(…)` becomes an `Ask`, and the answer what `interrupt` returns.

| the graph interrupts itself with | the person reads |
|---|---|
| text | the text; any words answer it |
| a mapping with `question`, and perhaps `choices` | the question; one of the choices answers it, if there are any |
| anything else | it as JSON; any words answer it |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

from langgraph.types import Interrupt

from shared.agent.events import Ask
from shared.agent.turn import Said
from shared.codec import storable
from workers.agents.adapters.said import as_text

NO_WORDS = "The agent waits for an answer."


def ask_of(one: Interrupt[Any]) -> Ask:
    """The interrupt as a question to a person. It waits as long as one without a time, or until the conversation ends."""
    question: Any = one.value
    choices: tuple[str, ...] = ()
    if isinstance(question, Mapping) and isinstance(question.get("question"), str):
        choices = _texts(question.get("choices"))
        question = question["question"]
    return Ask(ask_id(one), storable(as_text(question).strip()) or NO_WORDS, choices)


def ask_id(one: Interrupt[Any]) -> str:
    """The name of the question: another for each place in the graph, each time it is reached, and each wording. So an answer is never
    taken for one to a question that nobody was shown."""
    return f"{one.id}:{blake2b(as_text(one.value).encode(errors='replace'), digest_size=8).hexdigest()}"


def resume_values(open_ones: Iterable[Interrupt[Any]], answers: Mapping[str, Said]) -> dict[str, str]:
    """What the interrupts that have an answer are to return, by their ids."""
    known = {one.id: answers.get(ask_id(one)) for one in open_ones}
    return {id: said.choice or said.text for id, said in known.items() if said is not None}


def _texts(found: Any) -> tuple[str, ...]:
    if not isinstance(found, list | tuple):
        return ()
    return tuple([storable(text) for text in found if isinstance(text, str) and text.strip()])
