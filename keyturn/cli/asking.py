"""Questions in a terminal, for commands that set something up. Where nobody can answer, nothing is asked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from getpass import getpass

import typer

FROM_STDIN = "-"


def is_somebody_there() -> bool:
    """Whether questions reach a person: both ends are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def ask(
    text: str,
    hint: str = "",
    *,
    secret: bool = False,
    needed: bool = False,
    fault: Callable[[str], str] = lambda answer: "",
) -> str:
    """An answer with which nothing is wrong, or nothing where none is needed. A secret is not shown while it is typed."""
    if hint:
        typer.secho(f"  {hint}", dim=True)
    while True:
        answer = (_hidden(text) if secret else str(typer.prompt(text, default="", show_default=False))).strip()
        wrong = fault(answer) if answer else "it is needed" if needed else ""
        if not wrong:
            return answer
        typer.echo(f"  That cannot be right: {wrong}.")


def _hidden(text: str) -> str:
    """What is typed without being shown. The terminal stops showing it before the question appears: Typer's own prompt asks
    first, and what is pasted at that moment would be seen, and then lost."""
    try:
        return getpass(f"{text}: ")
    except (KeyboardInterrupt, EOFError):
        typer.echo()
        raise typer.Abort from None


def given_or_read(option: str | None) -> str | None:
    """What an option says; `-` stands for the next line of standard input, so that a secret is in no command line. At a
    terminal that line would be shown: nothing is read there, and the question is asked."""
    if option != FROM_STDIN:
        return option.strip() if option is not None else None
    return sys.stdin.readline().strip() if not sys.stdin.isatty() else None
