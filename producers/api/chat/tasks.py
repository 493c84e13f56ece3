"""What Open WebUI asks a model beside the chat: titles, tags, questions that could follow, searches, and how a text may go on.

They come as chat completions and are none: a turn for each would cost a model several requests per message, and would stand in
the conversation. Known tasks are answered here, without a model and in the form that is asked for: a conversation's title, and
nothing for the rest. Any other task is a turn of its own that belongs to no conversation.
"""

from __future__ import annotations

import re

import orjson

from producers.api.chat.inbound import Asked
from shared.context.title import first_words
from shared.value import value

HEADER = "x-openwebui-task"
TITLE = "title_generation"
_ANSWERS: dict[str, dict[str, object]] = {
    "tags_generation": {"tags": []},
    "follow_up_generation": {"follow_ups": []},
    "query_generation": {"queries": []},
    "autocomplete_generation": {"text": ""},
}
_BEGINS, _QUOTES = "### Task:\n", "<chat_history>"  # so Open WebUI's own prompts look
_FORMS = {
    "title": TITLE,
    "tags": "tags_generation",
    "follow_ups": "follow_up_generation",
    "queries": "query_generation",
}
_FORM = re.compile(r'\{ "(title|tags|follow_ups|queries)":')
_FIRST_SAID = re.compile(r"<chat_history>\s*USER: (.*?)(?:\nASSISTANT: |\n</chat_history>|\Z)", re.DOTALL)


@value
class Task:
    """A task by Open WebUI's name for it."""

    name: str

    def answer(self, asked: Asked, title: str | None) -> str | None:
        """What Open WebUI reads as its result; `title` is the conversation's own, if it has one. None: ask the agent."""
        if self.name == TITLE:
            said = _FIRST_SAID.search(asked.request.text)
            return orjson.dumps({"title": title or first_words(said[1] if said else asked.request.text)}).decode()
        found = _ANSWERS.get(self.name)
        return orjson.dumps(found).decode() if found is not None else None


def task_of(asked: Asked) -> Task | None:
    """The task that a request is: by its header or, where none is sent, by the prompt. None: it is what a user said."""
    if name := asked.headers.get(HEADER, "").strip():
        return Task(name)
    request = asked.request
    if request.history or request.has_tools or not request.text.startswith(_BEGINS) or _QUOTES not in request.text:
        return None
    form = _FORM.search(request.text)
    return Task(_FORMS[form[1]] if form else "")
