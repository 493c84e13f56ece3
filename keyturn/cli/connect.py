"""`keyturn connect PLATFORM`: set a platform up. What is asked and how it is checked says the platform itself, in
`producers/<platform>/connect.py`; its options are made from its questions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shared.platforms import CONNECTING, PLATFORMS

if TYPE_CHECKING:
    from producers.connecting import Connect


def connect(
    context: typer.Context, platform: Annotated[str, typer.Argument(help=f"{', '.join(CONNECTING)}.")] = "--help"
) -> None:
    """Connect a platform step by step: tokens are checked, the webhook set, settings written, a test message sent.

    `keyturn connect PLATFORM --help` lists what a platform asks for: each question is also an option.
    """
    if platform in ("--help", "-h"):
        typer.echo(f"keyturn connect PLATFORM\n\nPlatforms: {', '.join(CONNECTING)}.\n")
        typer.echo("keyturn connect PLATFORM --help lists what one asks for. Every question is also an option.")
        raise typer.Exit
    if platform not in CONNECTING:
        raise typer.BadParameter(f"there is nothing to connect for {platform!a}; take one of {', '.join(CONNECTING)}")
    _command(platform)(args=context.args, prog_name=f"keyturn connect {platform}")


def _command(name: str) -> typer.Typer:
    """The command of one platform."""
    from producers.connecting import connect_of

    part = connect_of(name)
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    steps = "\n\n".join(f"{n}. {step}" for n, step in enumerate(part.steps, 1))
    about = f"Connect {PLATFORMS[name].title}. In a terminal, whatever no option says is asked for.\n\n{steps}"
    app.command(help=about)(_with_options(name, part))
    return app


def _with_options(name: str, part: Connect[Any]) -> Callable[..., None]:
    def run(**options: Any) -> None:
        from keyturn.cli.connection import Given, set_up

        wanted = {question.name: options[question.name] for question in part.questions}
        allow = tuple(options.get("allow") or ())
        set_up(name, Given(wanted, options.get("address"), allow, options["to"], options["test"], options["ask"]))

    parameters = [_text(question.name, _help(question.text, question.hint)) for question in part.questions]
    if part.address_is_for:
        parameters.append(_text("address", f"This Keyturn's public https address: {part.address_is_for}."))
    if part.person is not None:
        about = f"Who may talk to the bot, and gets the test message: {part.person.looks}. May be given several times."
        parameters.append(_option("allow", list[str] | None, None, typer.Option(help=about)))
    parameters += [
        _text("to", "The chat that gets the test message."),
        _option("test", bool, True, typer.Option(help="Send a test message at the end.")),
        _option("ask", bool, True, typer.Option(help="Ask for what no option says, in a terminal.")),
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _help(text: str, hint: str) -> str:
    return f"{text}{f' ({hint})' if hint else ''}. `-` reads it from standard input."


def _text(name: str, about: str) -> inspect.Parameter:
    return _option(name, str | None, None, typer.Option(help=about))


def _option(name: str, kind: Any, default: object, option: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])
