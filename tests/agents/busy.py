"""Messages thrown at a running turn in every busy mode: the sender is the receiver's process, the turn runs in a worker."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import orjson

from shared.busy import BusyMode
from tests.agents.deployment import Deployment, open_deployment, until
from tests.agents.stop import AGENT
from tests.agents.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Thrown:
    """How the messages of one mode ended."""

    mode: BusyMode
    first: tuple[str, str | None]  # the turn that was running
    others: Counter[tuple[str, str | None]]
    after: tuple[str, str | None]  # what was said when all of that was over


async def show_busy(directory: Path, database_url: str, messages: int) -> tuple[list[Thrown], Verdict]:
    """So many messages for a turn of each mode. Each mode has a chat of its own in one deployment."""
    chats = {f"webhook:{mode.value}": mode.value for mode in BusyMode}
    settings: dict[str, float | str] = {
        "agent": AGENT,
        "busy_chats": orjson.dumps(chats).decode(),
        "heartbeat_seconds": 0.2,
    }
    async with open_deployment(directory, database_url, **settings) as here:
        await here.cluster.add("work", 2)
        thrown = list(await asyncio.gather(*(_thrown(here, mode, messages, directory) for mode in BusyMode)))
    verdict = Verdict()
    for one in thrown:
        verdict.expect(f"{one.mode.value}: messages", one.others.total(), messages)
        verdict.expect(f"{one.mode.value}: the next one", one.after, ("answered", None))
        _judge(verdict, one, messages)
    return thrown, verdict


async def _thrown(here: Deployment, mode: BusyMode, messages: int, directory: Path) -> Thrown:
    chat, path = mode.value, directory / mode.value
    joins = messages if mode is BusyMode.STEER else 0
    running = await here.say(chat, f"hold {joins} {path}")
    await until(path.with_suffix(".begun").exists, f"the turn of {chat} runs")
    others = await here.say(chat, *(f"message {n}" for n in range(messages)))
    if mode is BusyMode.REJECT:  # else the turn could end before the last one is looked at
        await here.ended(others)
    path.touch()
    [first], ends = await here.ended(running), await here.ended(others)
    [after] = await here.ended(await here.say(chat, "after"))
    return Thrown(mode, first, Counter(ends), after)


def _judge(verdict: Verdict, one: Thrown, messages: int) -> None:
    """What each mode makes of them. How many turns an interrupted burst gets depends on when each message comes."""
    answered, superseded = ("answered", None), "superseded"
    wanted: dict[BusyMode, tuple[tuple[str, str | None], dict[tuple[str, str | None], int] | None]] = {
        BusyMode.QUEUE: (answered, {answered: messages}),
        BusyMode.COLLECT: (answered, {answered: 1, ("merged", None): messages - 1}),
        BusyMode.STEER: (answered, {("merged", None): messages}),
        BusyMode.INTERRUPT: ((superseded, "interrupted"), None),
        BusyMode.ROLLBACK: ((superseded, "rolled back"), None),
        BusyMode.REJECT: (answered, {("rejected", "busy"): messages}),
    }
    first, others = wanted[one.mode]
    verdict.expect(f"{one.mode.value}: the running turn", one.first, first)
    if others is not None:
        verdict.expect(f"{one.mode.value}: the others", dict(one.others), others)
    else:
        verdict.expect(
            f"{one.mode.value}: states", {state for state, _ in one.others} - {"answered", superseded}, set()
        )


def table(thrown: list[Thrown]) -> list[str]:
    return [
        "| mode | the running turn | the messages thrown at it |",
        "|---|---|---|",
        *(f"| {one.mode.value} | {_said(one.first)} | {_counts(one.others)} |" for one in thrown),
    ]


def _counts(found: Counter[tuple[str, str | None]]) -> str:
    return ", ".join(f"{count} {_said(end)}" for end, count in found.most_common())


def _said(end: tuple[str, str | None]) -> str:
    return f"{end[0]} ({end[1]})" if end[1] else end[0]
