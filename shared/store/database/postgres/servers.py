"""The servers that a DATABASE_URL names: one, or a primary and its replicas (`postgresql://user@h1:5432,h2:5432/db`)."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import psycopg

from shared.errors import ConfigurationError
from shared.value import value

DEFAULT_PORT = "5432"
UNWRITABLE = ("standby", "read-only")  # values of target_session_attrs


@value
class Server:
    """One of them: its name for people, and how it alone is reached (with the password)."""

    name: str
    conninfo: str = field(repr=False)


def servers_of(url: str) -> tuple[Server, ...]:
    """In the order of the URL. A ConfigurationError in one sentence where no connection could ever be made.

    The driver would quote a URL that it cannot read on every attempt, with the password in it. No sentence does.
    """
    try:
        about = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise ConfigurationError("DATABASE_URL cannot be read; escape special characters in it") from None
    if about.get("target_session_attrs") in UNWRITABLE:
        text = (
            f"DATABASE_URL: target_session_attrs={about['target_session_attrs']} leads to servers that take no writes"
        )
        raise ConfigurationError(text)
    hosts, ports = _listed(about, "host"), _listed(about, "port")
    if not all(_is_port(port) for port in ports):
        text = "DATABASE_URL cannot be read; escape special characters in it, and write ports as numbers up to 65535"
        raise ConfigurationError(text)
    if len(hosts) == 1:
        if len(ports) > 1:
            raise ConfigurationError(f"DATABASE_URL names one host and {len(ports)} ports")
        return (Server(f"{hosts[0] or 'localhost'}:{ports[0] or DEFAULT_PORT}", url),)
    return _several(about, hosts, ports)


def _several(about: dict[str, Any], hosts: list[str], ports: list[str]) -> tuple[Server, ...]:
    addresses = _listed(about, "hostaddr") if about.get("hostaddr") else [""] * len(hosts)
    ports = ports * len(hosts) if len(ports) == 1 else ports
    if not all(hosts):
        raise ConfigurationError("DATABASE_URL has a comma without a host beside it")
    for words, found in (("ports", ports), ("addresses", addresses)):
        if len(found) != len(hosts):
            raise ConfigurationError(f"DATABASE_URL names {len(hosts)} hosts and {len(found)} {words}")
    names = [f"{host}:{port or DEFAULT_PORT}" for host, port in zip(hosts, ports, strict=True)]
    if len(set(names)) < len(names):
        raise ConfigurationError("DATABASE_URL names a server twice")
    own = ({"host": host, "port": port, "hostaddr": to} for host, port, to in zip(hosts, ports, addresses, strict=True))
    made = (psycopg.conninfo.make_conninfo(**about | {k: v or None for k, v in one.items()}) for one in own)
    return tuple(map(Server, names, made))


def _listed(about: dict[str, Any], name: str) -> list[str]:
    return [word.strip() for word in str(about.get(name) or "").split(",")]


def _is_port(text: str) -> bool:
    return not text or (text.isascii() and text.isdigit() and 0 < int(text) < 65536)
