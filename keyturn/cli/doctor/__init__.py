"""`keyturn doctor`: looks at everything that a deployment rests on, and says how to mend it. Changes nothing."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from keyturn.cli import show

if TYPE_CHECKING:
    from keyturn.cli.doctor.finding import Finding
    from shared.settings import Settings


def doctor(json: show.Json = False) -> None:
    """Check settings, platforms, files, servers, persistence, clocks, schema, disk and processes. Exit code 1 if anything fails."""
    from shared import log

    log.setup("error", "doctor")
    findings = examine()
    healthy = all(finding.level != "fail" for finding in findings)
    if json:
        show.as_json({"ok": healthy, "checks": [asdict(finding) for finding in findings]})
    else:
        _print(findings)
    raise typer.Exit(0 if healthy else 1)


def examine() -> list[Finding]:
    """Every finding, the first causes first."""
    from keyturn.cli.doctor.finding import fail, ok
    from shared import settings
    from shared.embedded import running
    from shared.errors import ConfigurationError

    try:
        config = running.joined(settings.load())
    except ConfigurationError as error:
        return [fail("settings", str(error), "correct the environment, .env or keyturn.toml")]
    return [ok("settings", "load and fit each other"), *asyncio.run(_examine(config))]


async def _examine(config: Settings) -> list[Finding]:
    from keyturn.cli.doctor.blobs import check_blobs
    from keyturn.cli.doctor.configuration import check_configuration
    from keyturn.cli.doctor.database import check_database
    from keyturn.cli.doctor.drained import check_drained, drained_names
    from keyturn.cli.doctor.platforms import ask_platforms
    from keyturn.cli.doctor.processes import check_backlog, check_closed_chats, check_pauses

    findings = [*check_configuration(config), *await ask_platforms(config), await check_blobs(config)]
    readable, found = await check_database(config)
    findings += found
    answering, found = await _examine_servers(config, await drained_names(config) if readable else frozenset())
    findings += found
    if readable and answering:
        findings += [await check_backlog(config), *await check_closed_chats(config), *await check_pauses(config)]
        findings += await check_drained(config)
    return findings


async def _examine_servers(config: Settings, drained: frozenset[str]) -> tuple[bool, list[Finding]]:
    """Whether every Redis answers, and what was found of each and of those who serve it."""
    from keyturn.cli.doctor.finding import fail
    from keyturn.cli.doctor.processes import check_processes
    from keyturn.cli.doctor.servers import check_server
    from shared.errors import ConfigurationError
    from shared.redis_servers import Servers

    try:
        servers = Servers(config.redis_urls(), config.partitions, config.redis_tls.connecting())
    except ConfigurationError as error:
        return False, [fail("redis", str(error), "set KEYTURN_REDIS_URL, or start `keyturn up` in this directory")]
    except ValueError:  # its text may quote the URL, and so the password
        return False, [
            fail(
                "redis",
                "a URL cannot be read",
                "correct KEYTURN_REDIS_URL: redis://HOST:PORT/0, with special characters escaped",
            )
        ]
    servers.drain(drained)
    answering, findings = True, []
    for server in servers.all:
        answers, found = await check_server(server, config)
        findings += [*found, *(await check_processes(servers, server) if answers else [])]
        answering &= answers
    await servers.close()
    return answering, findings


def _print(findings: list[Finding]) -> None:
    found = [(finding.level, finding.check, finding.detail) for finding in findings]
    show.table(("level", "check", "found"), found, empty="", folds=("found",))
    repairs = [(finding.check, finding.fix) for finding in findings if finding.fix]
    if repairs:
        typer.echo()
        show.table(("check", "how to fix"), repairs, empty="", folds=("how to fix",))
