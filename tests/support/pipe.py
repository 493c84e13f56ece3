"""Hands for tests: put messages in, start wakes as a worker would, and look at what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import uuid4

from shared import keys
from shared.clock import now_ms
from shared.codec import message_id
from shared.door import Acceptance, accept
from shared.lane import Claim, Lane, Lease, Started
from shared.lane.rq_names import popped_key, queue_key
from shared.lane.wake import RegisteredWorker
from shared.lane_key import CONTROL, ControlKey
from shared.messages import Inbound, Source
from shared.pipeline import Pipeline
from shared.session_key import SessionKey
from workers.agents.capabilities import asks, wants_context
from workers.agents.contract import Agent, Answers
from workers.agents.resolve import adapted, resolve
from workers.side.context import ContextBuilder
from workers.turn.control import answer_control
from workers.turn.parts import TurnParts
from workers.turn.take import take_turns

_numbers = count(1)


def an_inbound(
    text: str = "hello", *, chat: str = "c1", event_id: str | None = None, platform: str = "webhook", **source: Any
) -> Inbound:
    event_id = event_id or f"evt_{next(_numbers)}_{uuid4().hex[:8]}"
    place = Source(platform=platform, chat=chat, **{"user": "u1", **source})
    return Inbound(message_id(platform, "", event_id), event_id, place, text, received_at=now_ms())


def key_of(chat: str = "c1", platform: str = "webhook") -> str:
    return f"agent:main:{platform}:dm:{chat}"


def control_key(session_key: str) -> str:
    return str(ControlKey(SessionKey.parse(session_key)))


@dataclass
class Rig:
    pipe: Pipeline
    agent: Agent | Answers = field(default_factory=lambda: resolve("echo"))

    async def accept(self, text: str = "hello", **about: Any) -> Acceptance:
        return await accept(self.pipe, an_inbound(text, **about))

    async def pop(self, lane: Lane, key: str) -> str | None:
        """The next wake of a key's partition, popped as a worker pops it."""
        queue = keys.queue_name(lane.name, keys.partition(key, lane.partitions))
        client = self.pipe.servers.of_key(key).client
        found: Any = await client.lmove(queue_key(queue), popped_key(queue), "LEFT", "RIGHT")
        return found.decode() if found is not None else None

    async def start(self, lane: Lane, key: str, limit: int = 1) -> tuple[Claim, Lease | None]:
        """Pop a wake and claim its key."""
        job_id = await self.pop(lane, key)
        assert job_id is not None, "no wake is waiting"
        started = await self.start_job(lane, key, job_id, limit)
        return started.claim, started.lease

    async def start_job(self, lane: Lane, key: str, job_id: str, limit: int = 1) -> Started:
        queue = keys.queue_name(lane.name, keys.partition(key, lane.partitions))
        worker = RegisteredWorker(self.pipe.servers.of_key(key), "test", "rq:worker:test", heartbeat_ttl_s=30)
        return await lane.start(worker, queue, job_id, limit=limit)

    async def lease(self, key: str = key_of()) -> Lease:
        """Start the waiting wake of a turn key, which must be free; where none waits, that of its control messages."""
        awake = await self.pipe.turns.awake([key])
        lane, key = (self.pipe.turns, key) if awake[0] else (self.pipe.control, control_key(key))
        claim, lease = await self.start(lane, key)
        assert claim is Claim.LEASED and lease is not None
        return lease

    async def run_turns(self, key: str = key_of()) -> None:
        """What a worker does with the waiting wake of a key."""
        await self.turns(await self.lease(key))

    async def turns(self, lease: Lease) -> None:
        await (answer_control if lease.lane.name == CONTROL else take_turns)(lease, self.parts())

    def parts(self) -> TurnParts:
        agent = adapted(self.agent)
        context = ContextBuilder(self.pipe.settings, self.pipe.store) if wants_context(agent) else None
        return TurnParts(self.pipe, agent, agent, "test", asks(agent), context)

    async def expire_lease(self, lane: Lane, key: str) -> None:
        """As if the lease time had passed."""
        client = self.pipe.servers.of_key(key).client
        await client.hset(keys.state(lane.name, key), "until", "1")
        await client.zadd(keys.due(lane.name), {key: 1})

    async def transcript(self, key: str = key_of()) -> list[str]:
        session = await self.pipe.store.sessions.find(key)
        if session is None:
            return []
        return [row["text"] for row in await self.pipe.store.sessions.messages(session["id"], 10_000)]

    async def residue(self) -> Sequence[str]:
        """What our own names are left in Redis, beside the signs of life of processes."""
        found: list[str] = []
        for server in self.pipe.servers.all:
            found += [key.decode() async for key in server.client.scan_iter("kt:*")]
        return sorted(name for name in found if name not in (keys.HOUSEKEEPER, keys.SYNTHETIC))
