"""The terminal: `keyturn chat` talks to the agent through the pipeline of this machine."""

from __future__ import annotations

from shared.platforms.facts import Facts, Idempotency

NAME = "local"

FACTS = Facts(
    name=NAME,
    title="Local",
    users_are_admins=True,  # whoever sits at the terminal owns the machine
    idempotency=Idempotency.NATIVE,  # a reply is a row that the terminal follows: there is nothing to send twice
    prompt_place="a terminal on the machine running this agent",
    answer_goes="is shown in this terminal",
    chat_type_of=lambda chat: "dm",  # unless a message says otherwise
)
