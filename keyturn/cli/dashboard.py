"""`keyturn dashboard` and `keyturn login`: the web page for operators, and links that log in to it once."""

from __future__ import annotations

from typing import Annotated

import typer

from keyturn.cli.acting import user_name
from keyturn.dashboard.access import LoginFiles, Role
from shared import settings
from shared.embedded import running
from shared.errors import CannotDo


def login_link(config: settings.Settings, url: str, role: Role, name: str | None = None) -> str:
    """A link that logs in once. The token stands behind `#`, so no server, log or Referer sees it."""
    return f"{url}/login#{LoginFiles(config.data_dir).make_token(name or user_name(), role)}"


def dashboard(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; 0 picks a free one. Default: DASHBOARD__PORT, 8081.")
    ] = None,
    link: Annotated[bool, typer.Option(help="Print a link that logs in once.")] = True,
) -> None:
    """The dashboard: a web page to watch and repair a deployment."""
    from keyturn.dashboard.process import serve

    config = running.joined(settings.load())

    def ready(url: str) -> None:
        typer.echo(f"ready {url}")
        if link:
            typer.echo(f"login {login_link(config, url, Role.ADMIN)}")

    serve(config, host, config.dashboard.port if port is None else port, ready)


def login(
    role: Annotated[
        Role, typer.Option(help="view sees numbers, operate also reads and repairs, admin also deletes.")
    ] = Role.ADMIN,
    name: Annotated[str | None, typer.Option(help="As the audit log calls the person. Default: this user.")] = None,
    url: Annotated[str | None, typer.Option(help="Where the dashboard is reached. Default: that of `up`.")] = None,
) -> None:
    """Print a link that logs in to the dashboard, once and within an hour. Run it where the dashboard's DATA_DIR is."""
    config = settings.load()
    if url is None:
        here = running.find(config.data_dir)
        if here is None or not here.dashboard:
            raise CannotDo(f"no dashboard of an `up` runs in {config.data_dir}: name its address with --url")
        url = here.dashboard
    typer.echo(login_link(config, url.rstrip("/"), role, name))
