"""One MCP server as a worker knows it: started on first use, shared by all turns, and started again after it died.

| what happens | what follows |
|---|---|
| it dies, or its connection breaks | calls that wait for it fail; the next call starts it again |
| that happens twice in a row | its tools are taken away, and come back at the earliest after AWAY_SECONDS, doubled each time |
| it does not start within START_SECONDS of its settings | it is ended; this counts as one failure |
| it is a person's own, and nobody has called it for IDLE_SECONDS of its settings | it is ended; the next call starts it again |
| a tool of it says something else than before | the model is told what it was told before: see `_known` |
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import mcp_types
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from shared import log
from shared.errors import ConfigurationError
from workers.agents.mcp.bounded import HEADERS, bound
from workers.agents.mcp.stdio import stdio
from workers.agents.model.contract import ToolSpec
from workers.agents.programs.environment import environment
from workers.agents.programs.launch import Launch
from workers.agents.programs.program import Launcher

if TYPE_CHECKING:
    from shared.settings.agents import McpServer

FAILURES = 2  # in a row, until the tools are taken away
AWAY_SECONDS, LONGEST_AWAY_SECONDS = 30.0, 600.0
UNANSWERED = 3  # calls in a row that were given up, until a server that says nothing is started anew
HUNG_SECONDS = 5.0  # a call that was given up sooner, by a user who stopped the turn, says nothing about the server
PAGES = 100  # of a list of tools
KEY = "keyturn/idempotency-key"


class ServerAway(Exception):
    """The server does not answer; the text says so to the model."""


class ToolFailed(Exception):
    """The tool says that it failed; the text is its own."""


class SupervisedServer:
    """A supervised server. All of its methods may be called by many turns at the same time."""

    def __init__(
        self,
        name: str,
        config: McpServer,
        launcher: Launcher | None = None,
        make_room: Callable[[SupervisedServer], None] | None = None,
    ) -> None:
        """With a launcher, it is one of many that share it, each a person's own: it ends when nobody uses it. `make_room` is called
        before each start; it raises ServerAway where there is no room."""
        self.name = name
        self.config = config
        self._arguments = _arguments(name, config.line) if config.line else ()
        self._launcher = launcher or Launcher()
        self._is_personal = launcher is not None
        self._make_room = make_room
        self._calls = 0  # that wait for an answer
        self._used_at = 0.0
        self._idle: asyncio.TimerHandle | None = None
        self._connection: _Connection | None = None
        self._starting: asyncio.Task[_Connection] | None = None
        self._last_words = ""  # the last line that the program wrote to stderr
        self._failures = 0
        self._away_until = 0.0
        self._away_seconds = AWAY_SECONDS
        self._known: dict[str, ToolSpec] = {}  # as the model was first told: it is not told anything else

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, or one is being made."""
        return self._starting is not None or (self._connection is not None and not self._connection.is_closed)

    @property
    def is_busy(self) -> bool:
        return self._starting is not None or self._calls > 0

    def rest(self) -> None:
        """End the connection, and the program with it. The next call makes another."""
        if self._connection is not None:
            self._connection.abandon()
            self._connection = None

    async def tools(self) -> Mapping[str, mcp_types.Tool]:
        """Its tools by name, in the order of their names. ServerAway where it does not start."""
        found = (await self._connected()).tools
        self._was_used()
        return found

    async def call(self, tool: str, arguments: dict[str, Any], key: str) -> mcp_types.CallToolResult:
        """Call a tool. ServerAway where the server died or does not start; MCPError where it refuses the call."""
        self._calls += 1
        try:
            return await self._call(tool, arguments, key)
        finally:
            self._calls -= 1
            self._was_used()

    async def _call(self, tool: str, arguments: dict[str, Any], key: str) -> mcp_types.CallToolResult:
        connection, begun = await self._connected(), time.monotonic()
        meta: Any = {KEY: key}
        try:
            result = await connection.client.call_tool(tool, arguments, meta=meta)
        except asyncio.CancelledError:  # nobody waits for it any longer
            if time.monotonic() - begun >= HUNG_SECONDS:
                self._was_silent(connection)
            raise
        except MCPError as error:
            if error.code != mcp_types.CONNECTION_CLOSED:
                connection.unanswered = 0
                raise
            self._lost(connection, error)
            raise ServerAway(f"the server {self.name} ended before it answered") from None
        except (httpx2.HTTPError, OSError) as error:
            self._lost(connection, error)
            raise ServerAway(f"the server {self.name} does not answer") from None
        self._failures, self._away_seconds, connection.unanswered = 0, AWAY_SECONDS, 0
        return result

    def _was_silent(self, connection: _Connection) -> None:
        """A call was given up. After several in a row without any answer the server counts as dead: another is started."""
        connection.unanswered += 1
        if connection.unanswered >= UNANSWERED:
            self._lost(connection, TimeoutError())

    def spec(self, tool: mcp_types.Tool, shown_as: str) -> ToolSpec:
        """A tool as the model is told of it: as it was first told, whatever the server says by now."""
        new = ToolSpec(shown_as, tool.description or tool.title or tool.name, tool.input_schema)
        known = self._known.setdefault(tool.name, new)
        if (known.description, known.schema) != (new.description, new.schema):
            log.get().warning("mcp tool changed", server=self.name, tool=tool.name, shown="as before, until a restart")
        return known

    async def close(self) -> None:
        """End the connection, and the program with all that it started."""
        if self._idle is not None:
            self._idle.cancel()
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()
        if not self._is_personal:
            self._launcher.close()

    def _was_used(self) -> None:
        self._used_at = time.monotonic()
        if self._is_personal and self._idle is None:
            self._rest_later(self.config.idle_seconds)

    def _rest_later(self, seconds: float) -> None:
        self._idle = asyncio.get_running_loop().call_later(seconds, self._rest_if_idle)

    def _rest_if_idle(self) -> None:
        self._idle = None
        idle = self.config.idle_seconds
        left = idle if self.is_busy else self._used_at + idle - time.monotonic()
        if left > 0:
            self._rest_later(left)
        else:
            self.rest()

    async def _connected(self) -> _Connection:
        """The connection: the one that is there, the one that is being made, or a new one."""
        if self._connection is not None and not self._connection.is_closed:
            return self._connection
        if self._connection is not None:  # it died while nobody was calling
            self._lost(self._connection, EOFError("the connection ended"))
        if self._starting is None:
            if self._failures >= FAILURES and time.monotonic() < self._away_until:
                raise ServerAway(f"the server {self.name} is away")
            if self._make_room is not None:
                self._make_room(self)
            self._starting = asyncio.create_task(self._start())
            self._starting.add_done_callback(self._started)
        return await asyncio.shield(self._starting)  # a turn that is stopped does not stop it for others

    def _started(self, task: asyncio.Task[_Connection]) -> None:
        self._starting = None
        if not task.cancelled():
            task.exception()  # whoever waited has it

    async def _start(self) -> _Connection:
        self._last_words = ""
        connection = _Connection(self._transport)
        try:
            async with asyncio.timeout(self.config.start_seconds):
                await connection.open()
        except TimeoutError as error:
            await connection.close()
            self._failed(error, self._last_words)
            raise ServerAway(f"the server {self.name} did not start in time") from None
        except BaseException as error:
            await connection.close()
            if isinstance(error, asyncio.CancelledError):
                raise
            self._failed(error, self._last_words)
            raise ServerAway(f"the server {self.name} did not start") from None
        self._connection = connection
        return connection

    def _lost(self, connection: _Connection, error: Exception) -> None:
        """A connection broke. Every call that waited for it comes here: it counts once."""
        if self._connection is connection:
            self._connection = None
            connection.abandon()
            self._failed(error)

    def _hear(self, line: str) -> None:
        """Log what the server says to stderr at level debug: servers talk a lot, and nobody asked them."""
        self._last_words = line.strip() or self._last_words
        log.get().debug("mcp server", server=self.name, said=line)

    def _failed(self, error: BaseException, said: str = "") -> None:
        """`said` is logged for everybody to read: no words of users, so only what a server said before it was ready."""
        self._failures += 1
        if self._failures >= FAILURES:
            self._away_until = time.monotonic() + self._away_seconds
            self._away_seconds = min(self._away_seconds * 2, LONGEST_AWAY_SECONDS)
        more = {"said": said} if said else {}
        cause = type(_first(error)).__name__
        log.get().warning("mcp server failed", server=self.name, error=cause, in_a_row=self._failures, **more)

    @asynccontextmanager
    async def _transport(self, ended: Callable[[], None]) -> AsyncIterator[Any]:
        """The way to the server, as the SDK wants it. `ended` is called when the server ends it."""
        config = self.config
        if config.url:
            headers = {**HEADERS, **{name: text.get_secret_value() for name, text in config.headers.items()}}
            limit = httpx2.Timeout(config.start_seconds, read=None)
            async with (
                httpx2.AsyncClient(headers=headers, timeout=limit, event_hooks={"response": [bound]}) as client,
                streamable_http_client(config.url, http_client=client) as streams,
            ):
                yield streams
            return
        added = {name: text.get_secret_value() for name, text in config.environment.items()}
        variables = environment(os.environ, (), added)
        launch = Launch(self._arguments, variables, str(config.directory or os.getcwd()), limits={"RLIMIT_CORE": 0})
        async with stdio(self._launcher, launch, self._hear, ended) as streams:
            yield streams


class _Connection:
    """A client of the SDK, held open by a task of its own: it must be left where it was entered."""

    def __init__(self, transport: Callable[[Callable[[], None]], Any]) -> None:
        self._transport = transport
        self._end = asyncio.Event()
        self._holding: asyncio.Task[None] | None = None
        self.tools: Mapping[str, mcp_types.Tool] = {}
        self.unanswered = 0  # calls in a row that were given up

    @property
    def client(self) -> Client:
        return self._client

    @property
    def is_closed(self) -> bool:
        return self._holding is None or self._holding.done() or self._end.is_set()

    async def open(self) -> None:
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._holding = asyncio.create_task(self._hold(ready))
        await ready

    def abandon(self) -> None:
        """Let it end by itself."""
        self._end.set()

    async def close(self) -> None:
        self._end.set()
        if self._holding is not None:
            self._holding.cancel()
            await asyncio.gather(self._holding, return_exceptions=True)

    async def _hold(self, ready: asyncio.Future[None]) -> None:
        try:
            async with Client(self._transport(self.abandon)) as client:
                self._client = client
                self.tools = await _listed(client)
                if not ready.done():
                    ready.set_result(None)
                await self._end.wait()
        except Exception as error:
            if not ready.done():
                ready.set_exception(error)
        finally:
            ready.cancel()


def _first(error: BaseException) -> BaseException:
    """The error itself, or the first of a group, which the SDK's tasks raise."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _listed(client: Client) -> dict[str, mcp_types.Tool]:
    found: dict[str, mcp_types.Tool] = {}
    cursor = None
    for _ in range(PAGES):
        page = await client.list_tools(cursor=cursor)
        found |= {tool.name: tool for tool in page.tools}
        cursor = page.next_cursor
        if cursor is None:
            break
    return dict(sorted(found.items()))


def _arguments(name: str, line: str) -> tuple[str, ...]:
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise ConfigurationError(f"LLM__MCP: {name}: {error}") from None
    found = shutil.which(words[0]) if words else None
    if found is None:
        raise ConfigurationError(f"LLM__MCP: {name}: there is no program {line!r:.200}")
    return (os.path.abspath(found), *words[1:])
