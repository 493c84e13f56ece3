"""Fetching from addresses that strangers chose. Nothing in a private network is reached that way, whatever a name, a redirect
or a name server says.

An address is checked where the connection is made: the name is resolved once, every address that it has must be public, and
the connection goes to one of those. So a name that is resolved differently a moment later changes nothing. A redirect is a
new address, checked in the same way.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from shared.errors import PipelineError
from shared.http_client import HttpClient, HttpStream, open_http_client

REDIRECTS = 3
_SECONDS = 60.0  # for a request that says no time; each one here does
_REDIRECTING = (301, 302, 303, 307, 308)
_DOCUMENTATION = ipaddress.IPv6Network("3fff::/20")  # Python 3.11 does not know it yet
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # its last 32 bits are an IPv4 address, which is reached through it
_NUMBER = re.compile("0x[0-9a-f]*|[0-9]+")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class NotPublic(PipelineError):
    """The address leads to a private network, or nowhere that may be asked. The text does not quote it."""


class PublicHttp:
    """Gets what is on the public internet by https, and from hosts of the operator's own by http too."""

    def __init__(self, public: HttpClient, own: HttpClient, own_hosts: Collection[str]) -> None:
        self._public = public
        self._own = own
        self._own_hosts = frozenset(host.lower() for host in own_hosts)

    @asynccontextmanager
    async def get(self, address: str, seconds: float) -> AsyncIterator[HttpStream]:
        """Ask, following at most three redirects. Raises NotPublic, and what HttpClient raises."""
        url = _parsed(address)
        for _ in range(REDIRECTS + 1):
            async with self._client(url).get_stream(url, {}, seconds=seconds) as answer:
                if answer.status not in _REDIRECTING:
                    yield answer
                    return
                url = _next(url, answer.headers.get("location", ""))
        raise NotPublic("it is redirected too often")

    def _client(self, url: URL) -> HttpClient:
        host = (url.host or "").lower()
        if host in self._own_hosts:
            return self._own
        if url.scheme != "https":
            raise NotPublic("only https addresses are fetched")
        if _is_literal(host) or _NUMBER.fullmatch(host.rpartition(".")[2]):  # a name ends in a word; 127.1 is no name
            check_public(host)
        return self._public


class PublicResolver(AbstractResolver):
    """Finds addresses of names, and raises NotPublic unless all of them are public."""

    def __init__(self, names: AbstractResolver) -> None:
        self._names = names

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._names.resolve(host, port, family)
        for address in found:
            check_public(address["host"])
        return found

    async def close(self) -> None:
        await self._names.close()


@asynccontextmanager
async def open_public_http(
    own_hosts: Collection[str] = (), *, names: AbstractResolver | None = None
) -> AsyncIterator[PublicHttp]:
    """A client for addresses of strangers. `names` resolves names, where it is not the machine's own way."""
    resolver = PublicResolver(names or aiohttp.ThreadedResolver())
    guarded = aiohttp.TCPConnector(limit=0, resolver=resolver, socket_factory=_public_socket)
    async with (
        open_http_client(connections=0, seconds=_SECONDS, connector=guarded) as public,
        open_http_client(connections=0, seconds=_SECONDS) as own,
    ):
        try:
            yield PublicHttp(public, own, own_hosts)
        finally:
            await resolver.close()


def check_public(host: str) -> None:
    """NotPublic unless it is an address that everybody on the internet can reach."""
    try:
        address: _Address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        raise NotPublic("its address cannot be read") from None
    if not is_public(address):
        raise NotPublic("its address is not on the public internet")


def is_public(address: _Address) -> bool:
    """Not loopback, private, link-local, shared (CGNAT), multicast, reserved, or one of these inside an IPv6 address."""
    if isinstance(address, ipaddress.IPv6Address):
        if (mapped := address.ipv4_mapped) is not None:
            return is_public(mapped)
        if address in _NAT64:
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if address.sixtofour is not None or address.teredo is not None:
            return False
        if address.is_site_local or address in _DOCUMENTATION:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _public_socket(info: Any) -> socket.socket:
    """The last check, below everything that resolves: what is connected to is what was checked."""
    family, kind, protocol, _, place = info
    check_public(place[0])
    return socket.socket(family, kind, protocol)


def _parsed(address: str) -> URL:
    try:
        url = URL(address)
    except ValueError:
        raise NotPublic("its address cannot be read") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise NotPublic("only https addresses are fetched")
    return url


def _next(url: URL, location: str) -> URL:
    try:
        there = url.join(URL(location))
    except ValueError:
        raise NotPublic("it is redirected to nowhere") from None
    return _parsed(str(there.with_user(None).with_password(None)))


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    return True
