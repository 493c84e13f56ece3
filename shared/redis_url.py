"""What REDIS_URL may say.

| form | what it names |
|---|---|
| `redis://…`, `rediss://…`, `unix://…` | one server |
| `redis+sentinel://user:password@host:26379,host:26379/service/db` | whatever server the Sentinels call the primary of a service |
| `rediss+sentinel://…` | the same, with TLS to the Sentinels and to the servers |

User, password, ports and database may be left out. Sentinels that want a password of their own get it by
`?sentinel_username=…&sentinel_password=…`. Several servers stand one after the other, separated by commas.
"""

from __future__ import annotations

import re
from dataclasses import field
from urllib.parse import parse_qsl, unquote, urlsplit

from redis.connection import parse_url

from shared.errors import ConfigurationError
from shared.value import value

SENTINEL_PORT = 26379
_SENTINEL_SCHEMES = ("redis+sentinel://", "rediss+sentinel://")
_BEFORE_A_SCHEME = re.compile(r",(?=\s*[a-z][a-z+]*://)")  # a comma without a scheme behind it separates Sentinels
_FORM = "redis+sentinel://host:26379,host:26379/service/db"


@value
class SentinelUrl:
    """A service whose primary the Sentinels name."""

    sentinels: tuple[tuple[str, int], ...]
    service: str
    database: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)
    tls: bool = False


def split_urls(text: str) -> tuple[str, ...]:
    """The servers of a list."""
    return tuple(url.strip().rstrip(",") for url in _BEFORE_A_SCHEME.split(text) if url.strip(" ,"))


def sentinel_url(url: str, said_as: str = "REDIS_URL") -> SentinelUrl | None:
    """What a URL says about Sentinels; None for one of a server. A ConfigurationError quotes nothing that may be a secret; it
    names the setting or option that says the URL."""
    if not url.startswith(_SENTINEL_SCHEMES):
        return None
    scheme, _, rest = url.partition("://")
    place, _, query = rest.partition("?")
    hosts, _, path = place.partition("/")
    login, _, hosts = hosts.rpartition("@")
    username, _, password = login.partition(":")
    service, _, database = path.partition("/")
    if not service:
        raise ConfigurationError(f"{said_as}: the service is missing that the Sentinels know; write {_FORM}")
    if database and not (database.isascii() and database.isdigit() and len(database) < 6):
        raise ConfigurationError(f"{said_as}: the database of a Sentinel URL is a number; write {_FORM}")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := options.keys() - {"sentinel_username", "sentinel_password"}:
        raise ConfigurationError(f"{said_as}: a Sentinel URL knows no option {sorted(unknown)[0]!a:.40}")
    return SentinelUrl(
        tuple(_sentinel(host, said_as) for host in hosts.split(",")),
        unquote(service),
        int(database or 0),
        unquote(username) or None,
        unquote(password) or None,
        options.get("sentinel_username"),
        options.get("sentinel_password"),
        tls=scheme.startswith("rediss"),
    )


def hosts_of(url: str) -> tuple[str, ...]:
    """The hosts that a URL names; none for a socket's, and for one that cannot be read."""
    asked = sentinel_url(url)
    if asked is not None:
        return tuple(host for host, _ in asked.sentinels)
    try:
        host = urlsplit(url).hostname
    except ValueError:
        return ()
    return (host,) if host else ()


def place_of(url: str) -> str:
    """What a server is known by when partitions are spread: users, passwords, TLS and Sentinels may change without moving any."""
    asked = sentinel_url(url)
    if asked is not None:
        return f"{asked.service}/{asked.database}"
    rest = url.partition("://")[2]
    place, mark, options = rest.partition("?")
    # There are no options here: either no question mark, or it is part of the password.
    if "@" not in place and "=" not in options.partition("@")[0]:
        return rest.rpartition("@")[2]
    return f"{place.rpartition('@')[2]}{mark}{options}"


def server_of(url: str) -> tuple[object, ...]:
    """The same for all spellings of one server: with and without the usual port and database."""
    asked = sentinel_url(url)
    if asked is not None:
        return asked.service, asked.database
    try:
        said: dict[str, object] = dict(parse_url(url))  # type: ignore[no-untyped-call]
    except ValueError:
        return (place_of(url),)
    return said.get("path") or (said.get("host", "localhost"), said.get("port", 6379)), said.get("db", 0)


def name_of(url: str) -> str:
    """What people call a server: its place without options, so without any secret."""
    return place_of(url).partition("?")[0]


def _sentinel(text: str, said_as: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text.strip()}")
        if parts.hostname:
            return parts.hostname, parts.port or SENTINEL_PORT
    except ValueError:
        pass
    raise ConfigurationError(f"{said_as}: a Sentinel is a host and a port; write {_FORM}")
