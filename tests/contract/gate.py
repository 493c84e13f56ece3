"""Stands between a sender and its platform: lets requests through, or answers itself, or does not answer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from shared.value import value
from tests.contract.case import Answer, Outgoing
from tests.contract.fake_api import FakeApi, Given, NoAnswer, Request, open_api


@value
class Taken:
    """The platform takes the request; what the sender hears instead of its answer."""

    heard: Given


Trouble = Answer | NoAnswer | Taken  # without Taken: the platform never sees the request


class Gate:
    """`trouble` is for the sends to come, one each; None lets one through."""

    def __init__(self, case: Outgoing, api: FakeApi) -> None:
        self._case = case
        self._api = api
        self.url = api.url
        self.trouble: deque[Trouble | None] = deque()
        self.everything: Trouble | None = None  # for every request that sends nothing

    @property
    def sends(self) -> list[Request]:
        return [request for request in self._api.requests if self._case.is_send(request.method, request.path)]

    async def answer(self, request: Request) -> Given:
        trouble = self.everything
        if self._case.is_send(request.method, request.path):
            trouble = self.trouble.popleft() if self.trouble else None
        if trouble is None:
            return await self._forward(request)
        if isinstance(trouble, Taken):
            await self._forward(request)
            return trouble.heard
        return trouble

    async def _forward(self, request: Request) -> Answer:
        """The same bytes to the platform, on a connection of their own."""
        there = urlsplit(self._case.api_url)
        reader, writer = await asyncio.open_connection(there.hostname, there.port)
        try:
            head, _, body = request.raw.partition(b"\r\n\r\n")
            writer.write(head + b"\r\nconnection: close\r\n\r\n" + body)
            return _answer(await reader.read())
        finally:
            writer.close()


def _answer(raw: bytes) -> Answer:
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    named = [(name, text.strip()) for name, _, text in (line.partition(":") for line in lines)]
    dropped = ("content-length", "connection", "transfer-encoding")
    return Answer(int(first.split(" ")[1]), body, [pair for pair in named if pair[0].lower() not in dropped])


@asynccontextmanager
async def open_gate(case: Outgoing) -> AsyncIterator[Gate]:
    async with open_api() as api:
        gate = Gate(case, api)
        api.answer = gate.answer
        yield gate
