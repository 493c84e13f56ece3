"""A DATABASE_URL that cannot work is refused at once in one sentence, and its password is not repeated."""

from __future__ import annotations

import pytest

from shared.errors import ConfigurationError
from shared.store.database.postgres.pool import new_pool
from shared.store.database.postgres.servers import servers_of


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:top/secret@host/db",
        "postgresql://me:topsecret@host:port/db",
        "postgresql://me:topsecret@host/db?nonsense=topsecret",
        "postgresql://me:top%secret@host/db",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ConfigurationError, match="DATABASE_URL cannot be read") as raised:
        new_pool(url, 8)
    assert "secret" not in str(raised.value) and raised.value.__cause__ is None


@pytest.mark.parametrize("url", ["postgresql://me@host:5432/db", "postgresql://host/db", "postgresql://a:1,b:2/db"])
def test_a_url_that_can_be_read_opens_no_connection_yet(url: str) -> None:
    """Else it would raise: nobody answers at these addresses, and no event loop runs."""
    assert new_pool(url, 8).primary.server is None


@pytest.mark.parametrize(
    ("rest", "sentence"),
    [
        ("a:0,b:1/db", "write ports as numbers"),
        ("a:1,b:99999/db", "write ports as numbers"),
        ("a,,b/db", "a comma without a host"),
        ("a,/db", "a comma without a host"),
        ("a:1,b:2,a:1/db", "names a server twice"),
        ("a,a:5432/db", "names a server twice"),
        ("/db?host=a,b&port=1,2,3", "names 2 hosts and 3 ports"),
        ("/db?host=a&port=1,2", "names one host and 2 ports"),
        ("a,b,c/db?hostaddr=127.0.0.1,127.0.0.2", "names 3 hosts and 2 addresses"),
        ("a,b/db?target_session_attrs=standby", "servers that take no writes"),
        ("a/db?target_session_attrs=read-only", "servers that take no writes"),
    ],
)
def test_a_list_of_servers_that_cannot_work_is_refused_in_one_sentence(rest: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence) as raised:
        new_pool(f"postgresql://me:topsecret@{rest}", 8)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("rest", "names"),
    [
        ("a,b:6432/db", ["a:5432", "b:6432"]),
        ("/db?host=a,b&port=6432", ["a:6432", "b:6432"]),
        ("[::1]:6432,b/db?sslmode=require", ["::1:6432", "b:5432"]),
        ("a,b/db?target_session_attrs=read-write", ["a:5432", "b:5432"]),
        ("/db", ["localhost:5432"]),
    ],
)
def test_each_server_of_a_url_is_reached_alone_with_the_options_of_all(rest: str, names: list[str]) -> None:
    servers = servers_of(f"postgresql://me:topsecret@{rest}")
    assert [server.name for server in servers] == names
    assert all("topsecret" in server.conninfo and "," not in server.conninfo for server in servers)
    assert "topsecret" not in repr(servers)
    assert all("sslmode=require" in server.conninfo for server in servers) is ("sslmode" in rest)
