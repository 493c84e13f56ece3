"""Finding the primary among several servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol, TypeVar

import psycopg

from shared.background import end_tasks
from shared.store.database.postgres.primary import NoPrimary, NotPrimary, Primary, ServerStanding
from shared.store.database.postgres.servers import Server


class Connected(Protocol):
    """A connection to one server, and how that stood when it was made."""

    server: Server
    standing: ServerStanding

    async def close(self) -> None: ...


C = TypeVar("C", bound=Connected)
Connect = Callable[[Server], Coroutine[Any, Any, C]]


async def connect_to_primary(primary: Primary, connect: Connect[C]) -> C:
    """A connection to the primary. NoPrimary, or the error of the only server, where there is none now.

    The server that was the primary is asked first. Where it answers, the others are asked whether one of them was promoted: this
    process may have stood still meanwhile. Where it does not, the others are asked at once, and one is taken only when all have
    answered or run out of time: the first to answer may be an old primary that came back.
    """
    if len(primary.servers) == 1:
        return await _first_admitted(primary, [await connect(primary.servers[0])], [])
    failures = list[psycopg.Error]()
    if primary.server is not None:
        try:
            connection = await connect(primary.server)
            try:
                await primary.look_at_others()
            except BaseException:
                await connection.close()
                raise
            return await _first_admitted(primary, [connection], [])
        except psycopg.Error as error:
            failures.append(error)
    return await _first_admitted(primary, await _connect_to_all(primary.others(), connect, failures), failures)


async def _connect_to_all(servers: Iterable[Server], connect: Connect[C], failures: list[psycopg.Error]) -> list[C]:
    """Connections to all that answer, the server that was promoted last first. Adds the errors of those that do not."""
    tasks = [asyncio.create_task(connect(server)) for server in servers]
    try:
        await asyncio.wait(tasks)
    except BaseException:
        await end_tasks(*tasks)
        await _close([task.result() for task in tasks if not task.cancelled() and task.exception() is None])
        raise
    errors = [error for task in tasks if (error := task.exception()) is not None]
    made = [task.result() for task in tasks if task.exception() is None]
    for error in errors:
        if not isinstance(error, psycopg.Error):
            await _close(made)
            raise error
        failures.append(error)
    return sorted(made, key=lambda connection: -connection.standing.timeline)


async def _first_admitted(primary: Primary, made: list[C], failures: list[psycopg.Error]) -> C:
    """The first of these connections that leads to the primary. The others are closed."""
    for number, connection in enumerate(made):
        try:
            primary.admit(connection.server, connection.standing)
        except NotPrimary as error:
            failures.append(error)
            await connection.close()
        else:
            await _close(made[number + 1 :])
            return connection
    if len(failures) == 1:
        raise failures[0]
    raise NoPrimary("; ".join(_first_line(error) for error in failures))


async def _close(connections: list[C]) -> None:
    for connection in connections:
        await connection.close()


def _first_line(error: psycopg.Error) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].removeprefix("connection failed: ")
