"""REDIS_URL: one server, several, or the primary that Sentinels know."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from shared.errors import ConfigurationError
from shared.redis_servers import RedisServer
from shared.redis_url import SentinelUrl, hosts_of, name_of, place_of, sentinel_url, split_urls
from shared.settings import Settings

WHOLE = "rediss+sentinel://ann:p%40ss@h1:7000,h2,[::1]:7001/main/2?sentinel_username=s&sentinel_password=t%2Fu"


def test_a_sentinel_url_says_whom_to_ask_for_which_service() -> None:
    asked = SentinelUrl((("h1", 7000), ("h2", 26379), ("::1", 7001)), "main", 2, "ann", "p@ss", "s", "t/u", True)
    assert sentinel_url(WHOLE) == asked
    assert sentinel_url("redis+sentinel://h1/main") == SentinelUrl((("h1", 26379),), "main")
    assert sentinel_url("redis://h1:6379/0") is None
    assert hosts_of(WHOLE) == ("h1", "h2", "::1") and hosts_of("redis://h1:6379/0") == ("h1",)
    assert hosts_of("unix:///run/redis.sock") == () == hosts_of("redis://[x")
    assert "p@ss" not in repr(asked) and "t/u" not in repr(asked)


def test_a_comma_separates_servers_only_before_a_scheme() -> None:
    assert split_urls(" redis+sentinel://a,b/x , redis://c:1/0,redis://d,") == (
        "redis+sentinel://a,b/x",
        "redis://c:1/0",
        "redis://d",
    )


def test_partitions_stay_when_users_passwords_tls_or_sentinels_change() -> None:
    assert place_of("redis+sentinel://a:x@h1,h2/main/1") == place_of("redis+sentinel://h3:1/main/1") == "main/1"
    assert place_of("redis://a:x@h1:1/0") == place_of("rediss://h1:1/0") == "h1:1/0"


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://canary:canary@h1,h2/",
        "redis+sentinel://canary:canary@h1,h2",
        "redis+sentinel://canary:canary@h1/main/x",
        "redis+sentinel://canary:canary@h1/main/²",
        "redis+sentinel://canary:canary@h1:99999999/main",
        "redis+sentinel://canary:canary@h1:port/main",
        "redis+sentinel://canary:canary@h1,,h2/main",
        "redis+sentinel:///main",
        "redis+sentinel://[canary/main",
        "redis+sentinel://h1/main?password=canary",
        "redis+sentinel://",
    ],
)
def test_a_sentinel_url_that_cannot_be_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(ConfigurationError, match="REDIS_URL") as refused:
        sentinel_url(url)
    assert "canary" not in str(refused.value)


def test_a_server_that_is_named_twice_is_refused() -> None:
    for twice in (
        "redis://a:1/0,redis://x:y@a:1/0",
        "redis://a,redis://A:6379/0",
        "redis://a,rediss://a/?db=0",
        "unix:///run/redis.sock,unix:///run/redis.sock?db=0",
        "redis+sentinel://h1/main,redis+sentinel://h2/main/0",
    ):
        with pytest.raises(ConfigurationError, match="twice"):
            Settings(redis_url=SecretStr(twice)).redis_urls()
    for two in (
        "redis://a/0,redis://a/1",
        "redis://a,redis://a:6380",
        "unix:///a?db=1,unix:///a?db=2",
        "redis://,redis://a",
    ):
        assert len(Settings(redis_url=SecretStr(two)).redis_urls()) == 2


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("redis://h1:6379/0", "h1:6379/0"),
        ("rediss://user:canary@h1:6379/0?password=canary", "h1:6379/0"),
        ("redis://h1:6379/0?password=can@ary", "h1:6379/0"),
        ("redis://user:x@h1:6379/0?password=can@ary", "h1:6379/0"),
        ("redis://user:can?ary@h1:6379/0", "h1:6379/0"),
        ("unix://user:canary@/run/redis.sock?db=1&password=canary", "/run/redis.sock"),
        (WHOLE, "main/2"),
    ],
)
def test_the_name_of_a_server_holds_no_secret(url: str, name: str) -> None:
    """It is shown to operators and kept in the database."""
    assert name_of(url) == name


def test_an_option_that_redis_clients_do_not_know_is_said_at_start() -> None:
    for url in ("redis://h1:6379/0?canary=1", "rediss://h1/?ssl=canary", "unix:///run/redis.sock?host=canary"):
        with pytest.raises(ConfigurationError, match="REDIS_URL") as refused:
            RedisServer(url)
        assert "canary" not in str(refused.value)
