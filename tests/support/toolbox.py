"""Tools for tests, and what they were called with."""

from __future__ import annotations

import asyncio
import threading

from keyturn import CallContext, tool

calls: list[tuple[str, object]] = []
contexts: list[CallContext] = []
release = asyncio.Event()
threads: list[str] = []


def forget() -> None:
    calls.clear()
    contexts.clear()
    threads.clear()
    release.clear()


@tool(effect="read")
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    threads.append(threading.current_thread().name)
    calls.append(("add", (a, b)))
    return a + b


@tool(effect="read")
async def slow(n: int) -> str:
    """Answer in the order 2, 1."""
    calls.append(("slow", n))
    if n == 1:
        await release.wait()
    else:
        release.set()
    return f"slow {n}"


@tool(effect="keyed")
async def send(to: str, context: CallContext) -> str:
    """Send something."""
    calls.append(("send", to))
    contexts.append(context)
    return f"sent to {to}"


@tool
async def fail(reason: str) -> str:
    """Fail."""
    calls.append(("fail", reason))
    raise LookupError(reason)


@tool(effect="read")
def much() -> str:
    """Return more than anybody reads."""
    return "x" * 5_000


@tool
async def hang() -> str:
    """Never end."""
    calls.append(("hang", None))
    await asyncio.Event().wait()
    return ""
