"""Where requests wait whose sender is not known yet: so many from one address, so many in all, so many bytes in all.

A signature covers the body, so a body has to be read before anybody knows who sent it. What that may cost is fixed here,
whoever sends; one address cannot use up what the others need.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import Request

from shared.errors import PipelineError

PER_ADDRESS = 64
IN_ALL = 512
BYTES_IN_ALL = 64 * 1024 * 1024


class Pushing(PipelineError):
    """As many unverified requests of this address are open as may be."""


class Crowded(PipelineError):
    """As many unverified requests are open, or as many of their bytes are held, as may be."""


class Guest:
    """One request that is being read."""

    def __init__(self, antechamber: Antechamber) -> None:
        self._antechamber = antechamber
        self.bytes = 0

    def hold(self, size: int) -> None:
        """So many more bytes of it are kept; Crowded when that is too much with all the others'."""
        if self._antechamber.bytes + size > BYTES_IN_ALL:
            raise Crowded
        self._antechamber.bytes += size
        self.bytes += size


class Antechamber:
    """Of one process. Nothing in it outlives its request."""

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()
        self.guests = 0
        self.bytes = 0

    @contextmanager
    def admitted(self, request: Request) -> Iterator[Guest]:
        """For as long as a request is read whose sender is unknown."""
        address = neighbourhood(request.client.host if request.client is not None else "")
        if self._of[address] >= PER_ADDRESS:
            raise Pushing
        if self.guests >= IN_ALL:
            raise Crowded
        guest = Guest(self)
        self._of[address] += 1
        self.guests += 1
        try:
            yield guest
        finally:
            self.guests -= 1
            self.bytes -= guest.bytes
            self._of[address] -= 1
            if not self._of[address]:
                del self._of[address]


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
