"""Clients of Redis cost nothing that is the same for all of them."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from shared.redis_clients import RedisClients
from shared.redis_tls import NO_TLS


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "redis+sentinel://127.0.0.1:1/service"])
def test_a_connection_names_its_library_without_reading_the_files_of_its_package(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read() -> str:
        raise AssertionError("the package's files are read for each connection")

    monkeypatch.setattr("redis.utils.get_lib_version", read)
    clients = RedisClients(url, NO_TLS)
    for client in (clients.client(), clients.blocking_client()):
        pool: Any = client.connection_pool
        named = pool.make_connection().driver_info
        assert (named.formatted_name, named.lib_version) == ("redis-py", redis.__version__)
