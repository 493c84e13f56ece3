"""A DATABASE_URL that cannot be read is refused at once, and its password is not repeated."""

from __future__ import annotations

import pytest

from shared.errors import ConfigurationError
from shared.store.database.postgres.pool import new_pool


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
        new_pool(url)
    assert "secret" not in str(raised.value) and raised.value.__cause__ is None


@pytest.mark.parametrize("url", ["postgresql://me@host:5432/db", "postgresql://host/db", "postgresql://a:1,b:2/db"])
async def test_a_url_that_can_be_read_opens_no_connection_yet(url: str) -> None:
    pool = new_pool(url)
    assert pool.closed
