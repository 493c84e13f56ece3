"""`keyturn status`, `top` and `logs`: how the deployment is, live and in words."""

from __future__ import annotations

import asyncio
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from keyturn.cli.doctor.processes import check_processes
from shared import keys, log
from shared.door import accept
from shared.embedded import child
from shared.finding import Level
from shared.operating.pauses import pause
from shared.reading import overview as reading
from shared.reading.overview import overview
from shared.reading.verdict import verdict
from shared.reading.workers import WorkerState
from shared.settings import Settings
from tests.flow.test_cli import Cli, cli, environment, lone_cli  # noqa: F401 (fixtures)
from tests.support.pipe import Rig, an_inbound, key_of
from tests.support.place import KEYTURN, ROOT
from tests.support.terminal import Terminal
from workers.upkeep.due import DueKeys

ALIVE = WorkerState("w", "idle", 0, 50, 0, (), datetime(2026, 11, 17, 12, tzinfo=UTC), 0.5)
HOSTILE = "\x1b[2J\u202eMallory"


@pytest.fixture
def terminal_environment(settings: Settings, tmp_path: Path) -> dict[str, str]:
    assert settings.redis_url is not None
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "KEYTURN_REDIS_URL": settings.redis_url.get_secret_value(),
        "KEYTURN_DATABASE_URL": settings.database,
        "KEYTURN_PARTITIONS": str(settings.partitions),
        "KEYTURN_DATA_DIR": str(tmp_path),
    }


async def test_status_says_the_verdict_and_the_numbers(rig: Rig, cli: Cli) -> None:  # noqa: F811
    await rig.accept("one")
    await rig.accept("two")
    printed = await cli("status")
    assert printed.code == 1  # nobody works
    assert printed.out.startswith("No worker is alive, and 1 conversation waits: start `keyturn work`.\n")
    numbers = {line[:33].strip(): line[33:].strip() for line in printed.out.splitlines()[2:]}
    assert numbers["wait for their own conversation"] == "1"
    assert numbers["messages not ended"] == "2"
    found = (await cli("status", "--json")).json
    assert (found["mood"], found["ready"], found["behind"]) == ("bad", 1, 1)
    assert found["messages_waiting"]["count"] == 2 and found["cost_today_usd"] is None


async def test_the_verdict_says_why_conversations_wait_for_their_next_attempt(rig: Rig) -> None:
    await rig.accept("one", chat="c1")
    lease = await rig.lease(key_of("c1"))
    assert (await overview(rig.pipe)).delayed is None  # it runs
    await lease.begin(lease.mail[0].seq)
    await lease.release(delay=timedelta(seconds=60), spent=False, outage=True)
    await rig.accept("two", chat="c2")
    await (await rig.lease(key_of("c2"))).release(delay=timedelta(seconds=90), spent=True)
    seen = await overview(rig.pipe)
    assert seen.delayed is not None and (seen.delayed.keys, seen.delayed.failed) == (2, True)
    assert seen.delayed.away_since is not None and seen.delayed.next_at > seen.delayed.away_since
    assert verdict(replace(seen, workers=(ALIVE,), no_housekeeper=None), seen.at).text.startswith(
        "2 conversations wait for their next attempt"
    )


async def test_a_housekeeper_that_ended_is_missed_by_status_and_doctor_within_seconds(rig: Rig) -> None:
    """Its sign is as old as Redis says, whatever the clocks of machines say."""
    server = rig.pipe.servers.all[0]

    async def said() -> tuple[str | None, Level]:
        [*_, found] = await check_processes(rig.pipe.servers, server)
        return (await overview(rig.pipe)).no_housekeeper, found.level

    assert await said() == ("No housekeeper has run here", Level.WARN)
    await DueKeys(rig.pipe, server).look()
    assert await said() == (None, Level.OK)
    await server.client.pexpire(keys.HOUSEKEEPER, keys.HOUSEKEEPER_TTL_S * 1000 - 25_000)
    missed, level = await said()
    assert missed is not None and missed.startswith("No housekeeper has run for 2") and level is Level.WARN


async def test_of_many_keys_the_first_and_the_last_say_why_conversations_wait(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "DELAYED_LOOKED_AT", 1)
    for chat in ("c1", "c2", "c3", "c4"):
        await rig.accept("hello", chat=chat)
    for chat, seconds in (("c1", 60), ("c2", 90), ("c3", 120)):
        await (await rig.lease(key_of(chat))).release(delay=timedelta(seconds=seconds), spent=chat == "c3")
    seen = (await overview(rig.pipe)).delayed
    assert seen is not None and (seen.keys, seen.failed, seen.away_since) == (3, True, None)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_status_and_doctor_name_what_is_paused(rig: Rig, cli: Cli) -> None:  # noqa: F811
    await pause(rig.pipe, "platform:webhook", by="ann")
    await rig.accept("one")
    await rig.start(rig.pipe.turns, key_of())
    found = (await cli("status", "--json")).json
    assert (found["pauses"], found["paused"], found["behind"]) == (1, 1, 0)
    checks = {check["check"]: check["detail"] for check in (await cli("doctor", "--json")).json["checks"]}
    assert checks["pauses"] == "1 pause is in force: platform:webhook"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_status_answers_while_redis_is_away(
    rig: Rig,
    cli: Cli,  # noqa: F811
    environment: pytest.MonkeyPatch,  # noqa: F811
) -> None:
    environment.setenv("KEYTURN_REDIS_URL", f"redis://127.0.0.1:{child.free_port()}/0")
    printed = await cli("status")
    assert printed.code == 1 and printed.out.startswith("Redis does not answer.")
    numbers = {line[:33].strip(): line[33:].strip() for line in printed.out.splitlines()[2:]}
    asked_of_redis = ("wait for a worker", "turns running", "wait for their own conversation", "workers")
    assert {numbers[name] for name in asked_of_redis} == {"not known"}
    assert numbers["wait behind a pause"] == "not known, nothing is paused" and numbers["dead letters"] == "0"
    found = (await cli("status", "--json")).json
    assert {found[name] for name in ("ready", "ready_seconds", "running", "delayed", "behind", "slots")} == {None}
    looked = await cli("top", "--once")
    assert looked.code == 0 and "conversations are not known while a store is away" in looked.out


async def test_top_once_lists_who_is_at_work(rig: Rig, cli: Cli) -> None:  # noqa: F811
    await accept(rig.pipe, an_inbound("hello", chat=HOSTILE))
    await rig.accept("held")
    lease = await rig.lease()
    printed = await cli("top", "--once")
    assert printed.code == 0 and "\x1b" not in printed.out and "\u202e" not in printed.out
    assert [line.split()[0] for line in printed.out.splitlines() if "agent:main" in line] == ["awake", "leased"]
    found = (await cli("top", "--once", "--json", "--filter", f"key:{key_of()} state:leased")).json
    assert [one["key"] for one in found["conversations"]] == [key_of()] and found["complete"]
    refused = await cli("top", "--once", "--filter", "nope:1")
    assert refused.code == 1 and "write platform:" in refused.err
    await lease.release(spent=False)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_top_shows_and_stops_a_turn_by_keys_at_60_columns(
    rig: Rig, terminal_environment: dict[str, str], tmp_path: Path
) -> None:
    await rig.accept("held")
    lease = await rig.lease()

    def drive() -> tuple[int, str, bytes]:
        command = [*KEYTURN, "top", "--every", "0.2"]
        with Terminal(command, cwd=tmp_path, env=terminal_environment, columns=60) as top:
            top.until("leased")
            top.type("\r")
            top.until("A worker runs its turn, attempt 1.")
            top.type("\x1b")
            top.until("s stop")
            top.type("s")
            top.until("y / n")
            top.type("y")
            top.until("stopped: 1 message gets no answer")
            top.type("q")
            return top.ended(), top.shown, top.raw

    code, shown, raw = await asyncio.to_thread(drive)
    assert code == 0 and "Looking…" in shown
    assert raw.rstrip().endswith(b"\x1b[?1049l")  # the terminal is left as it was
    assert not lease.ended and await _stop_time(rig) > 0


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_top_as_json_prints_a_line_for_each_look_until_nobody_reads(
    rig: Rig, terminal_environment: dict[str, str], tmp_path: Path
) -> None:
    def read() -> tuple[list[str], int, str]:
        command = [*KEYTURN, "top", "--json", "--every", "0.2"]
        pipe, env = subprocess.PIPE, terminal_environment
        with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=pipe, stderr=pipe, text=True) as top:
            assert top.stdout is not None and top.stderr is not None
            lines = [top.stdout.readline() for _ in range(2)]
            top.stdout.close()
            return lines, top.wait(120), top.stderr.read()

    lines, code, err = await asyncio.to_thread(read)
    assert [orjson.loads(line)["status"]["mood"] for line in lines] == ["bad", "bad"]  # nobody works
    assert (code, err) == (0, "")


async def _stop_time(rig: Rig) -> int:
    client: Any = rig.pipe.servers.of_key(key_of()).client
    return int(await client.hget(keys.state("turns", key_of()), "stop") or 0)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_logs_follow_one_message_from_the_receiver_to_its_end(
    rig: Rig,
    cli: Cli,  # noqa: F811
    tmp_path: Path,
    environment: pytest.MonkeyPatch,  # noqa: F811
) -> None:
    none = await cli("logs")
    assert none.code == 1 and "`keyturn up` writes them" in none.err
    config = rig.pipe.settings.model_copy(update={"log_dir": tmp_path / "logs"})
    log.setup_for(config, "work")
    accepted = await rig.accept("hello", event_id="evt_77")
    await rig.accept("other", chat="c2")
    await rig.run_turns()
    by_key = await cli("logs", "--key", key_of())
    assert [line.split()[3] for line in by_key.out.splitlines()] == ["accepted", "answered"]
    for name in (accepted.id, "evt_77"):
        found = await cli("logs", "--message", name, "--json")
        lines = [line for line in found.out.splitlines() if line]
        assert len(lines) == 2 and all(accepted.id in line for line in lines)
    assert (await cli("logs", "--level", "error")).out == ""
