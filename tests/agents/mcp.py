"""Turns that share one MCP server: how many processes it takes, what a killed server costs, and what a killed worker leaves."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.agents.deployment import Deployment, asks, is_running, kill, open_deployment, seconds_until, until
from tests.agents.verdict import Verdict
from tests.faults.staged import post
from tests.support import mcp_server
from tests.support.openai import Asked, a_call, open_provider

GONE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Served:
    turns: int
    processes: set[int]  # that answered them
    came_back: bool  # the call after the server was killed was answered, by another process
    gone: float  # seconds from the worker's death until its servers are gone
    served_again: bool  # the worker that came back answered too


async def show_mcp(directory: Path, database_url: str, turns: int) -> tuple[Served, Verdict]:
    """So many turns at once in one worker, each with a call."""
    line = shlex.join([sys.executable, "-P", mcp_server.__file__])
    async with open_provider(answer=_where) as provider:
        settings = asks(provider, mcp__shop__line=line, mcp__shop__start_seconds="120")
        async with open_deployment(directory, database_url, **settings, concurrency=turns) as here:
            [worker] = await here.cluster.add("work")
            chats = [f"chat{n}" for n in range(turns)]
            processes = set(await _answers(here, chats))
            [first] = list(processes)[:1]
            kill(first)
            await until(lambda: not is_running(first), "the server is dead")
            [second] = await _answers(here, ["again"])
            since = time.monotonic()
            here.cluster.kill(worker)
            gone = await seconds_until(lambda: not is_running(second), "the server is gone", since)
            [third] = await _answers(here, ["anew"])
    served = Served(turns, processes, second != first, gone, third not in (first, second))
    verdict = Verdict()
    verdict.expect("processes for all turns", len(processes), 1)
    verdict.expect("a killed server comes back on the next call", served.came_back, True)
    verdict.expect("so does one whose worker was killed", served.served_again, True)
    verdict.within("a killed worker's server is gone", gone, GONE_SECONDS)
    return served, verdict


def _where(asked: Asked) -> str | dict[str, Any]:
    """A model that asks the server which process it is, and says so."""
    last = asked.body["messages"][-1]
    return str(last["content"]) if last["role"] == "tool" else {"content": "", "tool_calls": [a_call("shop__where")]}


async def _answers(here: Deployment, chats: Sequence[str]) -> list[int]:
    """What each chat is told, which is the process that served it."""
    await here.ended(await post(here.cluster, [m for chat in chats for m in here.messages(chat, "where?")]))
    await until(lambda: all(here.shown(chat) for chat in chats), "every chat has its answer")
    return [int(here.shown(chat)[-1]) for chat in chats]


def lines(served: Served) -> list[str]:
    return [
        f"{served.turns} turns were served by {len(served.processes)} process.",
        f"A killed server {'came back on the next call' if served.came_back else 'did NOT come back'}; "
        f"the server of a killed worker was gone after {served.gone:.3f} s.",
    ]
