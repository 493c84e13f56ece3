"""`keyturn init`: a first `keyturn.toml` in this directory."""

from __future__ import annotations

from typing import Annotated

import typer

TOML = "keyturn.toml"


def init(
    agent: Annotated[
        str | None, typer.Option(help="Who answers: echo, local, llm, command, http or module:object. [default: echo]")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model of the agent llm, such as openai:gpt-5.")] = None,
    base_url: Annotated[str | None, typer.Option(help="An OpenAI-compatible server, up to and with its /v1.")] = None,
    api_key: Annotated[
        str | None, typer.Option(help="The provider's key, written to .env. `-` reads it from standard input.")
    ] = None,
    ask: Annotated[bool, typer.Option(help="Ask for what no option says, in a terminal.")] = True,
) -> None:
    """Write a first keyturn.toml, with explanations. One that is there is never changed."""
    from pathlib import Path

    from keyturn.cli import asking
    from keyturn.cli.first_settings import first_settings
    from shared import settings
    from shared.errors import ConfigurationError
    from shared.settings.files import SettingsFiles
    from shared.whole_files import create_file
    from workers.agents.named import BUILT_IN, NO_MODEL, module_and_object

    if Path(TOML).exists():
        raise ConfigurationError(f"{TOML} is there already: it was left as it is")
    asks = ask and asking.is_somebody_there()
    if agent is None and asks:
        hint = "echo: says what you said; local: a small model on this machine; llm: a model of your choice"
        agent = asking.ask("Who answers [echo]", f"{hint}; or module:object, an agent of yours")
    agent = agent or "echo"
    key = asking.given_or_read(api_key)
    if agent == "llm" and asks:
        if model is None:
            hint = "provider:name, such as openai:gpt-5, or the name at your own server"
            model = asking.ask("Which model", hint, needed=True)
        if base_url is None:
            base_url = asking.ask("Its address", "up to and with /v1; leave it empty for the provider's own")
        if key is None:
            key = asking.ask("The provider's key", "written to .env; leave it empty to set it later", secret=True)
    if agent == "llm" and not model:
        raise ConfigurationError(NO_MODEL)
    if agent not in ("echo", *BUILT_IN):
        module_and_object(agent)
    llm = {name: text for name, text in {"model": model, "base_url": base_url}.items() if text}
    settings.load(agent=agent, llm={**llm, **({"api_key": key} if key else {})})  # refuses what cannot work
    files = SettingsFiles(Path())
    if key:
        files.change("llm", "api_key", key, secret=True)
        files.write()
    try:
        create_file(Path(TOML), first_settings({"": {"agent": agent}, "llm": llm}))
    except FileExistsError:
        files.undo()
        raise ConfigurationError(f"{TOML} is there already: it was left as it is") from None
    except OSError as error:
        files.undo()
        raise ConfigurationError(f"{TOML} cannot be written: {error.strerror}") from None
    typer.echo(f"written: {TOML}{', .env' if key else ''}")
    typer.echo("Next: keyturn chat, to talk to it here; keyturn connect PLATFORM, to put it where people write.")
