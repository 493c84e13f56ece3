"""`keyturn questions`: what waits for a person's answer, and withdrawing it."""

from __future__ import annotations

from typing import Annotated

import typer

from keyturn.cli import show
from keyturn.cli.acting import act_in_store
from keyturn.cli.deployment import ask_store

app = typer.Typer(no_args_is_help=True, help="Questions: what waits for a person's answer or approval.")
Id = Annotated[str, typer.Argument(callback=show.readable, help="The question, as `keyturn questions list` shows it.")]


@app.command("list")
def list_(limit: show.Limit = 100, json: show.Json = False) -> None:
    """List the open questions of everybody, the oldest first, without their words."""
    from shared.reading.questions import question_page

    found = ask_store(lambda store, _: question_page(store, limit))
    if json:
        show.as_json([{name: value for name, value in show.named(one).items() if name != "text"} for one in found])
        return
    rows = [
        [
            one.id,
            _kind(one.is_approval),
            ", ".join(one.tools),
            one.asked,
            one.created_at,
            one.expires_at,
            one.session_key,
        ]
        for one in found
    ]
    show.table(
        ("question", "kind", "tools", "asked", "since", "expires", "key"), rows, empty="nobody is asked anything"
    )


@app.command("show")
def show_(id: Id, json: show.Json = False) -> None:
    """Show an open question: its words, and the arguments of the call that it is about."""
    from shared.reading.questions import question

    found = ask_store(lambda store, _: question(store, id))
    if json:
        show.as_json(found)
        return
    about = show.named(found) | {"tools": ", ".join(found.tools), "choices": ", ".join(found.choices)}
    show.record({name: value for name, value in about.items() if name != "text"})
    typer.echo()
    show.passage("text", found.text)


@app.command()
def withdraw(id: Id, json: show.Json = False) -> None:
    """End a question as if its time were over: no tool runs, and the agent goes on without an answer."""
    from shared.operating.questions import withdraw_question

    withdrawn = act_in_store("withdraw question", id, lambda store: withdraw_question(store, id))
    if json:
        show.as_json({"id": withdrawn.id, "state": "withdrawn"})
    else:
        typer.echo(f"{show.plain(id)} is withdrawn: a housekeeper ends it")


def _kind(is_approval: bool) -> str:
    return "approval" if is_approval else "question"
