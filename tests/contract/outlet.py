"""A way out that is open: the platform's real sender behind a gate, and delivery one step at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from typing import Any

from structlog.testing import capture_logs

from shared import keys
from shared.agent.turn import Result, Turn
from shared.clock import now_ms
from shared.codec import message_id
from shared.door import accept
from shared.lane import Lease
from shared.lane_key import Destination
from shared.messages import Entry, Inbound, Reply, Source
from shared.pipeline import Pipeline, open_pipeline
from shared.sending.budgets import SendBudgets
from shared.settings import Settings
from tests.contract.case import SEND_SECONDS, Outgoing
from tests.contract.gate import Gate, open_gate
from tests.contract.inlet import MakeSettings
from tests.store.books import ask
from tests.support.pipe import Rig
from workers.delivery import open_senders
from workers.delivery.deliver import Deliveries, deliver_parts
from workers.delivery.sender import Sender

_ids = count(1)


class Saying:
    """An agent that says these."""

    def __init__(self, *replies: Reply) -> None:
        self._replies = replies

    async def run(self, turn: Turn) -> Result:
        return Result((Entry("assistant", "said"),), self._replies)


class Outlet:
    def __init__(self, case: Outgoing, pipe: Pipeline, sender: Sender, gate: Gate, lines: list[Any]) -> None:
        self.case, self.pipe, self.sender, self.gate, self.lines = case, pipe, sender, gate, lines
        # No budget: the contract is the sender's, and tests send more than a chat is sent in a minute.
        self.unlimited = replace(pipe, budgets=SendBudgets(pipe.servers, Settings(_env_file=None)))  # type: ignore[call-arg]

    async def decide(self, *replies: Reply, source: Source | None = None, message: str | None = None) -> None:
        """Somebody says something, and a turn decides to answer so. Nothing is sent yet."""
        source, event_id = source or self.case.source, f"evt_{next(_ids)}"
        id = message_id(source.platform, source.account, event_id)
        inbound = Inbound(id, event_id, source, "hello", received_at=now_ms(), message=message)
        acceptance = await accept(self.pipe, inbound)
        await Rig(self.pipe, Saying(*replies)).run_turns(acceptance.session_key)

    async def deliver(self, source: Source | None = None) -> None:
        """What a worker does with the destination's wake, whatever delay it was given back with."""
        lease = await self._lease(self.place(source))
        await deliver_parts(lease, Deliveries(self.unlimited, {self.case.platform: self.sender}))

    async def _lease(self, place: str) -> Lease:
        rig, lane = Rig(self.pipe), self.pipe.deliveries
        while True:
            job_id = await rig.pop(lane, place)
            if job_id is None:  # it was given back with a delay: as if that were over
                await rig.expire_lease(lane, place)
                await lane.recover(place)
                job_id = await rig.pop(lane, place)
                assert job_id is not None, "nothing is to be delivered"
            started = await rig.start_job(lane, place, job_id)
            if started.lease is not None:
                return started.lease

    async def say(self, *replies: Reply, source: Source | None = None, message: str | None = None) -> None:
        await self.decide(*replies, source=source, message=message)
        await self.deliver(source)

    def place(self, source: Source | None = None) -> str:
        source = source or self.case.source
        return str(Destination(source.platform, source.account, source.chat))

    async def rows(self) -> list[dict[str, Any]]:
        return await ask(
            self.pipe.store, "SELECT state, attempts, waits, ambiguous, receipt, reason FROM outbox ORDER BY id"
        )

    async def row(self) -> dict[str, Any]:
        [row] = await self.rows()
        return row

    async def letters(self) -> list[dict[str, Any]]:
        return await ask(self.pipe.store, "SELECT kind, reason, detail FROM dead ORDER BY id")

    async def waits_seconds(self) -> float:
        """How long the destination was given back for."""
        client = self.pipe.servers.of_key(self.place()).client
        seconds, microseconds = await client.time()
        until = await client.hget(keys.state(self.pipe.deliveries.name, self.place()), "until")
        return int(until or 0) / 1000 - seconds - microseconds / 1e6

    def texts(self) -> list[str]:
        return [shown.text for shown in self.case.shown()]


@asynccontextmanager
async def open_outlet(
    case: Outgoing, make_settings: MakeSettings, *, seconds: float = SEND_SECONDS, url: str = "", **settings: Any
) -> AsyncIterator[Outlet]:
    """The sender of a case, talking to its platform through a gate, or to `url`."""
    async with open_gate(case) as gate:
        blocks = case.blocks(url or gate.url, seconds)
        async with open_pipeline(make_settings(**blocks, **settings)) as pipe, open_senders(pipe) as senders:
            with capture_logs() as lines:
                yield Outlet(case, pipe, senders[case.platform], gate, lines)
