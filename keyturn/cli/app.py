"""The commands, one function each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import typer

from keyturn.cli import (
    dead,
    deliveries,
    deploy,
    importing,
    keys,
    messages,
    pair,
    questions,
    redis_servers,
    schedule,
    sessions,
)
from keyturn.cli.backup import backup
from keyturn.cli.connect import connect
from keyturn.cli.dashboard import dashboard, login
from keyturn.cli.doctor import doctor
from keyturn.cli.down import down
from keyturn.cli.init import init
from keyturn.cli.logs import logs
from keyturn.cli.reload import reload
from keyturn.cli.restore import restore
from keyturn.cli.send import send
from keyturn.cli.status import status
from keyturn.cli.top import top
from keyturn.cli.usage import usage
from shared import VERSION, settings
from shared.embedded import running
from shared.errors import ConfigurationError
from shared.platforms import LISTENING

app = typer.Typer(
    name="keyturn",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Runs chat agents for many conversations: one turn at a time per key, in order, nothing lost.",
)

Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(help="Port to listen on; 0 picks a free one.")]
AgentName = Annotated[
    str | None, typer.Option(help="echo, llm, local, command, http or module:object. Overrides KEYTURN_AGENT.")
]

_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}  # options that only the one who is called knows


@cache
def command() -> Callable[..., Any]:
    """All commands, put together once. A tenth of a second of CPU, which a fork server spends for those that it forks."""
    made = typer.main.get_command(app)
    _show_flags_alone(made)
    return made


def _show_flags_alone(made: Any) -> None:
    """Typer's help puts `<bool>` behind a flag, as if it took a value."""
    for option in (*made.params, made.get_help_option(typer.Context(made))):
        if getattr(option, "is_flag", False):
            option.metavar = ""
    for below in getattr(made, "commands", {}).values():
        _show_flags_alone(below)


def load(**overrides: Any) -> settings.Settings:
    """Settings for a command that joins a running deployment."""
    return running.joined(settings.load(**{name: value for name, value in overrides.items() if value is not None}))


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(VERSION)
        raise typer.Exit


@app.command()
def up(
    host: Host = "127.0.0.1",
    port: Port = 8080,
    agent: AgentName = None,
    workers: Annotated[int | None, typer.Option(help="Worker processes. Overrides KEYTURN_WORKERS.")] = None,
) -> None:
    """Everything on this machine: Valkey and SQLite under .keyturn/, receiver, workers, housekeeper, dashboard.

    Ctrl-C drains.
    """
    from keyturn.cli.up import Up

    overrides = {name: value for name, value in {"agent": agent, "workers": workers}.items() if value is not None}
    Up(settings.load(**overrides), host, port).run()


@app.command()
def chat(
    message: Annotated[str | None, typer.Option("--message", "-m", help="Ask only this, print the answer.")] = None,
    name: Annotated[str, typer.Option(help="Which conversation.")] = "terminal",
    agent: AgentName = None,
) -> None:
    """Talk to the agent in this terminal, through the real pipeline. Starts an `up` if none runs in this directory."""
    from keyturn.cli.chat import chat as run

    run(settings.load(**({"agent": agent} if agent else {})), name, message)


@app.command()
def receive(host: Host = "127.0.0.1", port: Port = 8080) -> None:
    """A receiver: webhooks and the HTTP API."""
    from producers.server.process import receive as run

    run(load(), host, port, lambda url: typer.echo(f"ready {url}"))


@app.command()
def listen(platform: Annotated[str, typer.Argument(help=f"{', '.join(LISTENING)}.")]) -> None:
    """A listener: holds the connection to a platform that is not told by webhook. Of several, one listens."""
    from producers.listening import listen as run

    run(load(), platform)


@app.command()
def work(
    only: Annotated[str | None, typer.Option(help="turns (control messages included), deliveries or control.")] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Turns at once; with --only deliveries, chats at once.")
    ] = None,
    agent: AgentName = None,
) -> None:
    """A worker: runs turns and deliveries. Start as many as there are cores."""
    from shared.lane_key import CONTROL, DELIVERIES, TURNS
    from workers.process.run import LANES
    from workers.process.run import work as run

    if only is not None and only not in LANES:
        raise typer.BadParameter(f"--only takes {' or '.join(LANES)}")
    lanes = {None: LANES, TURNS: (TURNS, CONTROL)}.get(only, (only or "",))  # who runs turns hears what is said of them
    what = "delivery_concurrency" if only == DELIVERIES else "concurrency"
    run(load(**{what: concurrency}, agent=agent), lanes)


@app.command()
def housekeep() -> None:
    """A housekeeper: wakes what should be awake. Two are enough for any deployment."""
    import uvloop

    from shared import log
    from shared.interpreter import share_with_threads
    from shared.pipeline import open_pipeline
    from shared.probe import open_probe
    from shared.store.database.schema import require_schema
    from shared.tracing import open_tracing
    from workers.process.run import stop_on_signals
    from workers.upkeep.housekeeper import Housekeeper

    config = load()
    log.setup_for(config, "housekeep")
    share_with_threads()

    async def keep() -> None:
        async with open_probe(config, "housekeeper"), open_pipeline(config) as pipe:
            await require_schema(pipe.store.database)
            log.get().info("housekeeping")
            async with open_tracing(pipe, "housekeep"):
                await Housekeeper(pipe).run(stop_on_signals())

    uvloop.run(keep())


@app.command()
def migrate(
    dry_run: Annotated[bool, typer.Option(help="Only say what would be done.")] = False,
    wait: Annotated[bool, typer.Option(help="Wait for a database that does not answer yet.")] = False,
) -> None:
    """Bring the database's schema up to date. Workers of the version before go on working."""
    from keyturn.cli import deployment
    from shared import log

    config = load()
    log.setup("error", "migrate", config.secret_values())
    if wait and not dry_run:
        names = asyncio.run(deployment.migrate_when_there(config, lambda why: typer.echo(f"waiting: {why}", err=True)))
    else:
        names = asyncio.run(deployment.migrate(config, dry_run=dry_run))
    verb = "would apply" if dry_run else "applied"
    typer.echo("\n".join(f"{verb} {name}" for name in names) if names else "the schema is up to date")


app.add_typer(messages.app, name="messages")
app.add_typer(keys.app, name="keys")
app.add_typer(dead.app, name="dead")
app.add_typer(deliveries.app, name="deliveries")
app.add_typer(pair.app, name="pair")
app.add_typer(questions.app, name="questions")
app.add_typer(schedule.app, name="schedule")
app.add_typer(sessions.app, name="sessions")
app.add_typer(importing.app, name="import")
app.add_typer(deploy.app, name="deploy")
app.add_typer(redis_servers.app, name="redis")
app.command()(init)
app.command(add_help_option=False, context_settings=_PASSED_ON)(connect)
app.command()(down)
app.command()(dashboard)
app.command()(login)
app.command()(doctor)
app.command()(reload)
app.command()(backup)
app.command()(restore)
app.command()(send)
app.command()(status)
app.command()(top)
app.command()(logs)
app.command()(usage)


@app.command(add_help_option=False, context_settings=_PASSED_ON)
def bench(context: typer.Context) -> None:
    """Measure this machine: Keyturn beside other queues. Takes --quick, --only CASE, --json FILE, --chart FILE."""
    try:
        from tests.bench.__main__ import main
    except ModuleNotFoundError:
        text = "the benchmark is not part of the installed package: use ./run bench in a checkout of the source"
        raise ConfigurationError(text) from None
    raise typer.Exit(main(context.args))
