"""`keyturn reload`: receivers and listeners read their settings again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from keyturn.cli import show
from keyturn.cli.acting import act
from shared.finding import counted

if TYPE_CHECKING:
    from shared.pipeline import Pipeline


def reload(json: show.Json = False) -> None:
    """Let all receivers and listeners of the deployment take on allow lists, secrets and quotas, without a restart.

    The settings are checked here first: if they do not work, nobody is told. Each process reads its own files.
    """
    told = act("reload settings", "receivers and listeners", _reload)
    if json:
        show.as_json({"told": told})
    else:
        who = counted(told, "receiver or listener", "receivers and listeners")
        typer.echo(f"told {who}; each logs what changed, and what needs a restart")


async def _reload(pipe: Pipeline) -> int:
    from shared.errors import CannotDo
    from shared.news import News, tell_producers

    for block in pipe.settings.blocks:
        block.check()
    told = await tell_producers(pipe, News.RELOAD)
    if not told:
        raise CannotDo("no receiver or listener of this deployment is running")
    return told
