"""What doctor makes of the facts it reads, and what it never prints."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from keyturn.cli.doctor.configuration import disk_space, rq_version
from keyturn.cli.doctor.database import journal_mode, postgres_findings, schema, sqlite_version
from keyturn.cli.doctor.finding import Finding, Level, redacted, said
from keyturn.cli.doctor.platforms import check_platforms
from keyturn.cli.doctor.processes import Worker, housekeeper_finding, worker_findings
from keyturn.cli.doctor.servers import clock, server_findings
from shared.platforms.slack import SlackSettings
from shared.platforms.telegram import TelegramSettings
from shared.settings import Settings

SOUND = {
    "redis_version": "7.2.4",
    "role": "master",
    "aof_enabled": 1,
    "aof_last_write_status": "ok",
    "maxmemory": 0,
    "maxmemory_policy": "noeviction",
    "cluster_enabled": 0,
}
QUEUES = {"turns-0": 0, "turns-1": 0}


def server_levels(durability: str = "journal", **changes: object) -> set[Level]:
    return {finding.level for finding in server_findings("here", {**SOUND, **changes}, durability)}


def test_a_sound_server_is_sound() -> None:
    assert server_levels() == {Level.OK}


@pytest.mark.parametrize(
    "changes",
    [
        {"redis_version": "6.0.16"},
        {"role": "slave"},
        {"cluster_enabled": 1},
        {"aof_last_write_status": "err"},
        {"maxmemory_policy": "allkeys-lru", "maxmemory": 1 << 30},
        {"aof_enabled": 0, "durability": "redis"},
    ],
)
def test_a_server_that_can_lose_or_refuse_our_work_fails(changes: dict[str, object]) -> None:
    durability = str(changes.pop("durability", "journal"))
    assert Level.FAIL in server_levels(durability, **changes)


@pytest.mark.parametrize("changes", [{"aof_enabled": 0}, {"maxmemory_policy": "allkeys-lru"}])
def test_a_server_that_only_costs_time_warns(changes: dict[str, object]) -> None:
    assert server_levels("journal", **changes) == {Level.OK, Level.WARN}


def test_a_clock_that_is_off_warns_then_fails() -> None:
    assert [clock("here", away).level for away in (0.1, -5, 300)] == [Level.OK, Level.WARN, Level.FAIL]


def test_versions_that_were_never_tried_fail() -> None:
    assert [rq_version(v).level for v in ("2.12.0", "2.11.9", "3.0")] == [Level.OK, Level.FAIL, Level.FAIL]
    assert [sqlite_version(v).level for v in ((3, 35, 0), (3, 34, 1))] == [Level.OK, Level.FAIL]
    old = {"server_version_num": "120022", "fsync": "on", "synchronous_commit": "on"}
    assert [finding.level for finding in postgres_findings("here", old)] == [Level.FAIL]


def test_a_database_that_may_forget_what_it_confirmed_is_named() -> None:
    facts = {"server_version_num": "180000", "fsync": "off", "synchronous_commit": "off"}
    assert [finding.level for finding in postgres_findings("here", facts)] == [Level.WARN, Level.WARN]
    assert [journal_mode(mode).level for mode in ("wal", "delete")] == [Level.OK, Level.FAIL]


def test_a_schema_is_behind_equal_or_ahead() -> None:
    known = ["0001_a", "0002_b"]
    applied = ({"0001_a"}, set(known), {*known, "0003_c"})
    assert [schema(known, names).level for names in applied] == [Level.FAIL, Level.OK, Level.WARN]


def test_a_disk_that_fills_up_warns_then_fails() -> None:
    free = (10 * 2**30, 2**29, 2**20)
    assert [disk_space(Path("x"), n).level for n in free] == [Level.OK, Level.WARN, Level.FAIL]


@pytest.mark.parametrize(
    ("workers", "depths", "expected"),
    [
        ([Worker("a", frozenset(QUEUES), 1)], QUEUES, {Level.OK}),
        ([], QUEUES, {Level.WARN}),
        ([], {**QUEUES, "turns-1": 3}, {Level.FAIL}),
        ([Worker("a", frozenset({"turns-0"}), 1)], {**QUEUES, "turns-1": 3}, {Level.FAIL}),
        ([Worker("a", frozenset(QUEUES), 1), Worker("b", frozenset(QUEUES), 99)], QUEUES, {Level.OK, Level.WARN}),
        ([Worker("a", frozenset({*QUEUES, "turns-7"}), 1)], QUEUES, {Level.OK, Level.FAIL}),
        ([Worker("a", frozenset({*QUEUES, "mails"}), 1)], QUEUES, {Level.OK}),
    ],
    ids=["served", "nobody", "nobody and mail", "one queue unserved", "one silent", "other partitions", "other queues"],
)
def test_every_queue_needs_a_live_worker_with_the_same_partitions(
    workers: list[Worker], depths: dict[str, int], expected: set[Level]
) -> None:
    assert {finding.level for finding in worker_findings("here", workers, depths)} == expected


def platform_doubts(**settings: Any) -> list[Finding]:
    return [finding for finding in check_platforms(Settings(**settings)) if finding.level is Level.WARN]


def test_a_platform_that_lacks_a_secret_is_named_with_the_settings_that_it_needs() -> None:
    [alone] = platform_doubts(slack=SlackSettings(bot_token=SecretStr("xoxb-1"), allowed_users=("U1",)))
    assert (alone.check, alone.detail) == ("slack", "replies can be sent, and no message comes in")
    [off] = platform_doubts(telegram=TelegramSettings(allowed_users=("42",), home_channel="7"))
    assert off.detail == "is off, although TELEGRAM__ALLOWED_USERS and TELEGRAM__HOME_CHANNEL are set"
    assert off.fix == "set KEYTURN_TELEGRAM__TOKEN"
    assert platform_doubts(telegram=TelegramSettings(enabled=False, allowed_users=("42",))) == []


def test_a_bot_that_nobody_may_talk_to_is_named_with_the_remedies() -> None:
    token = SecretStr("1:x")
    [doubt] = platform_doubts(telegram=TelegramSettings(token=token))
    assert "nobody may talk to this bot" in doubt.detail and "KEYTURN_TELEGRAM__ALLOWED_USERS" in doubt.fix
    assert "keyturn pair approve telegram CODE" in doubt.fix
    [doubt] = platform_doubts(telegram=TelegramSettings(token=token, pairing=False), allowed_users=("slack:U1",))
    assert "pair approve" not in doubt.fix
    for somebody in ({"allowed_users": ("42",)}, {"allow_all_users": True}, {"allowed_users": ("telegram:42",)}):
        assert platform_doubts(telegram=TelegramSettings(token=token), **somebody) == []


@pytest.mark.parametrize(("silent", "words"), [(1, "1 worker has been silent"), (2, "2 workers have been silent")])
def test_a_number_and_its_words_fit_each_other(silent: int, words: str) -> None:
    workers = [Worker(str(n), frozenset(QUEUES), 99) for n in range(silent)]
    assert any(words in finding.detail for finding in worker_findings("here", workers, QUEUES))


@pytest.mark.parametrize(
    ("overdue", "silent", "level"), [(0, 5, Level.OK), (0, 21, Level.WARN), (0, None, Level.WARN), (1, 5, Level.FAIL)]
)
def test_overdue_keys_and_an_old_sign_of_life_tell_of_a_missing_housekeeper(
    overdue: int, silent: int | None, level: Level
) -> None:
    sign = timedelta(seconds=silent) if silent is not None else None
    assert housekeeper_finding("here", overdue, sign).level is level


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
        ("rediss://user:canary@host:6379/0?password=canary", "rediss://host:6379/0"),
        ("redis://:ca@nary@host/0", "redis://host/0"),
        ("redis://:ca/nary@host/0", "redis://host/0"),
        ("redis://:ca?nary@host/0", "redis://…"),
        ("redis://:ca#nary@host/0", "redis://…"),
        ("postgresql://u:canary@a:1,b:2/db?sslmode=require", "postgresql://a:1,b:2/db"),
        ("unix:///run/redis.sock?password=canary", "unix:///run/redis.sock"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert redacted(url) == shown


def test_an_error_that_repeats_the_password_is_not_repeated() -> None:
    assert said(ValueError("no host nary"), "redis://:ca@nary@host/0") == "ValueError"
    assert said(ValueError("bad canary"), "redis://:canary@host/0") == "ValueError"
    assert said(ValueError("bad ca/nary"), "redis://:ca%2Fnary@host/0") == "ValueError"
    assert said(ValueError("refused\nmore"), "redis://:canary@host/0") == "ValueError: refused"
