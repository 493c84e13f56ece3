"""Requests whose sender is not known yet: so many from one address, so many in all, so many bytes in all.

A signature covers the body, so a body has to be read before anybody knows who sent it. What that may cost is fixed here,
whoever sends; one address cannot use up what the others need.
"""

from __future__ import annotations

import ipaddress
from typing import Self

from starlette.requests import Request

from shared.errors import PipelineError

PER_ADDRESS = 64
IN_ALL = 512
BYTES_IN_ALL = 64 * 1024 * 1024


class TooManyFromOneAddress(PipelineError):
    """As many unverified requests of this address are open as may be."""


class TooManyInAll(PipelineError):
    """As many unverified requests are open, or as many of their bytes are held, as may be."""


class UnverifiedRequest:
    """One of them, in a `with` block for as long as it is being read. Nothing of it counts when the block has ended."""

    __slots__ = ("_address", "_requests", "bytes")

    def __init__(self, requests: UnverifiedRequests, address: str) -> None:
        self._requests = requests
        self._address = address
        self.bytes = 0

    def __enter__(self) -> Self:
        requests, address = self._requests, self._address
        requests.require_room(address)
        requests.by_address[address] = requests.by_address.get(address, 0) + 1
        requests.count += 1
        return self

    def __exit__(self, *_: object) -> None:
        requests, address = self._requests, self._address
        requests.count -= 1
        requests.bytes -= self.bytes
        if requests.by_address[address] > 1:
            requests.by_address[address] -= 1
        else:
            del requests.by_address[address]

    def hold(self, size: int) -> None:
        """So many more bytes of it are kept; TooManyInAll when that is too much with all the others'."""
        self._requests.require_bytes(size)
        self._requests.bytes += size
        self.bytes += size


class UnverifiedRequests:
    """Those of one process."""

    def __init__(self) -> None:
        self.by_address: dict[str, int] = {}
        self.count = 0
        self.bytes = 0

    def admitted(self, request: Request) -> UnverifiedRequest:
        """For a `with` block around the reading of a request whose sender is unknown. Entering it may raise
        TooManyFromOneAddress or TooManyInAll."""
        return UnverifiedRequest(self, address_of(request))

    def require_room(self, address: str) -> None:
        """TooManyFromOneAddress or TooManyInAll unless one more request may be open."""
        if self.by_address.get(address, 0) >= PER_ADDRESS:
            raise TooManyFromOneAddress
        if self.count >= IN_ALL:
            raise TooManyInAll

    def require_bytes(self, size: int) -> None:
        """TooManyInAll unless so many more bytes may be held."""
        if self.bytes + size > BYTES_IN_ALL:
            raise TooManyInAll


def address_of(request: Request) -> str:
    """What a request counts for."""
    client = request.scope.get("client")
    return neighbourhood(client[0]) if client is not None else ""


def neighbourhood(host: str) -> str:
    """What counts as one address: for IPv6 the network of 64 bits, because whoever has one address there has them all."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
