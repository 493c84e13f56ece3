"""Turns that wait for a person: what they hold meanwhile, and that a restart of everything loses none of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tests.agents.deployment import Deployment, asks, open_deployment, until
from tests.agents.shop import charged
from tests.agents.verdict import Verdict
from tests.faults.evidence import query, residue
from tests.faults.load import Message
from tests.faults.staged import post
from tests.support.openai import Asked, a_call, open_provider

LOOK_SECONDS = 0.5
TURNS_AT_ONCE = 4  # of each worker: parked turns that held a slot would leave none for others
MOST_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Parked:
    questions: int
    open: int  # by the table of questions
    redis_bytes: int  # more than before
    redis_keys: list[str]  # of ours
    others_answered: bool  # another chat, while all of them wait
    restarted: int  # processes, Redis among them
    charged: int  # effects after the approvals
    charged_twice: int
    answered: int  # chats that were told the end


async def show_questions(directory: Path, database_url: str, count: int) -> tuple[Parked, Verdict]:
    """So many chats are asked for an approval. Then every process is killed and started again, and all of them approve."""
    async with open_provider(answer=_tea) as provider:
        settings = asks(provider, tools="tests.agents.shop", approve="charge")
        async with open_deployment(directory, database_url, **settings, concurrency=TURNS_AT_ONCE) as here:
            await here.cluster.add("work", 2)
            await _parked(here, "warm", max(1, count // 20))  # scripts, buffers and tables have their usual size by now
            before = _bytes(here)
            await _parked(here, "chat", count)
            used, found = _bytes(here) - before, residue(here.cluster)
            opened = query(
                database_url, "SELECT COUNT(*) AS n FROM asks WHERE state = 'open' AND session_key LIKE '%chat%'"
            )
            [other] = await here.ended(await here.say("other", "hello"))
            restarted = await _restart(here)
            chats = [f"chat{n}" for n in range(count)]
            approvals = [message for chat in chats for message in here.messages(chat, "/approve")]
            await here.ended(await post(here.cluster, approvals))
            await until(lambda: _enjoying(here) >= count, "every chat has its answer", LOOK_SECONDS)
            effects, answered = charged(directory), _enjoying(here)
    parked = Parked(
        count,
        opened[0]["n"],
        used,
        found,
        other == ("answered", None),
        restarted,
        len(effects),
        len(effects) - len(set(effects)),
        answered,
    )
    verdict = Verdict()
    verdict.expect("questions that are open", parked.open, count)
    verdict.expect("leases, mail and wakes in Redis", parked.redis_keys, [])
    verdict.expect("below 1 MB of Redis", parked.redis_bytes < MOST_BYTES, True)
    verdict.expect("another chat is answered", parked.others_answered, True)
    verdict.expect("effects after the approvals", (parked.charged, parked.charged_twice), (count, 0))
    verdict.expect("chats that have their answer", parked.answered, count)
    return parked, verdict


def _tea(asked: Asked) -> str | dict[str, Any]:
    """A model that charges for what it is told, and knows when that is done."""
    last = asked.body["messages"][-1]
    if last["role"] == "tool":
        return "enjoy"
    what = str(last["content"])
    if what == "hello":
        return "hi"
    return {"content": None, "tool_calls": [a_call("charge", orjson.dumps({"what": what}).decode())]}


async def _parked(here: Deployment, names: str, count: int) -> None:
    """So many chats ask for something, and each of them is asked whether it may be charged."""
    chats = [f"{names}{n}" for n in range(count)]
    said: list[Message] = [message for chat in chats for message in here.messages(chat, f"tea-{chat}")]
    await here.ended(await post(here.cluster, said))
    await until(lambda: here.platform.shown().keys() >= set(chats), "every question has arrived", LOOK_SECONDS)
    await until(lambda: not residue(here.cluster), "nothing is left in Redis", LOOK_SECONDS)


def _enjoying(here: Deployment) -> int:
    """How many chats were told the end, once."""
    return sum([part.text for part in parts].count("enjoy") == 1 for parts in here.platform.shown().values())


def _bytes(here: Deployment) -> int:
    info: Any = here.cluster.redis.info("memory")
    return int(info["used_memory"])


async def _restart(here: Deployment) -> int:
    """Kill every process, Redis too, before any of them comes back."""
    cluster = here.cluster
    members = list(cluster.members)
    for member in members:
        process = member.running
        member.kept = False
        cluster.kill(member)
        if process is not None:
            await process.ended.wait()
    await cluster.valkeys.restart()
    await asyncio.gather(*(cluster.start(member) for member in members))
    return len(members) + 1


def lines(parked: Parked) -> list[str]:
    return [
        f"{parked.open} of {parked.questions} questions open; Redis grew by {parked.redis_bytes:,} bytes and holds "
        f"{len(parked.redis_keys)} of our keys; another chat was {'answered' if parked.others_answered else 'NOT answered'}.",
        f"{parked.restarted} processes killed and started again; then {parked.charged} calls ran, "
        f"{parked.charged_twice} of them twice, and {parked.answered} chats had their answer.",
    ]
