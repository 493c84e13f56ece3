"""What doctor makes of the facts it reads, and what it never prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from keyturn.cli.doctor.configuration import disk_space, rq_version
from keyturn.cli.doctor.database import journal_mode, postgres_findings, schema, sqlite_version
from keyturn.cli.doctor.finding import Level, redacted, said
from keyturn.cli.doctor.processes import Worker, housekeeper_finding, worker_findings
from keyturn.cli.doctor.servers import clock, server_findings

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


def test_overdue_keys_are_the_sign_of_a_missing_housekeeper() -> None:
    assert [housekeeper_finding("here", overdue).level for overdue in (0, 1)] == [Level.OK, Level.FAIL]


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
