"""Each Redis: reachable, a primary, new enough, keeping what it is given, with the same time as this machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from typing import Any

import redis

from keyturn.cli.doctor.finding import Finding, fail, ok, redacted, said, version_tuple, warn
from shared.lane.rq_names import SUSPENDED
from shared.redis_servers import RedisServer
from shared.settings import Settings

ANSWER_SECONDS = 5.0
OLDEST = (6, 2)  # LMOVE and BLMOVE
CLOCK_WARN_SECONDS, CLOCK_FAIL_SECONDS = 2.0, 60.0
ServerInfo = Mapping[str, object]  # what INFO says


async def check_server(server: RedisServer, settings: Settings) -> tuple[bool, list[Finding]]:
    """Whether it answers, and what was found."""
    place = redacted(server.url)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            before = time.time()
            seconds, micros = await server.client.time()
            away = seconds + micros / 1_000_000 - (before + time.time()) / 2
            info: Any = await server.client.info()
            suspended = await server.client.exists(SUSPENDED)
    except (redis.RedisError, OSError, TimeoutError) as error:
        fix = "start it, or correct KEYTURN_REDIS_URL (address, password, TLS)"
        return False, [fail(f"redis {place}", f"does not answer: {said(error, server.url)}", fix)]
    found = [ok(f"redis {place}", f"answers, version {_version(info)}")]
    found += server_findings(place, info, settings.durability)
    found.append(clock(place, away))
    if suspended:
        found.append(warn(f"redis {place}", "the workers are suspended", "resume them: rq resume"))
    return True, found


def server_findings(place: str, info: ServerInfo, durability: str) -> Iterator[Finding]:
    """What a server's own INFO says about it."""
    name = f"redis {place}"
    version = str(info.get("redis_version", "0"))
    if version_tuple(version) < OLDEST:
        yield fail(name, f"version {version} is too old", "install Redis 6.2 or later, or any Valkey")
    if info.get("role") not in ("master", None):
        yield fail(name, "is a replica", "point KEYTURN_REDIS_URL at the primary")
    if info.get("cluster_enabled"):
        yield fail(name, "runs in cluster mode", "RQ knows no cluster: list independent servers in KEYTURN_REDIS_URL")
    yield _append_only(f"append only {place}", info, durability)
    yield _eviction(f"eviction {place}", info)


def clock(place: str, away_seconds: float) -> Finding:
    """Leases run on Redis' clock, signature windows on ours: they need not agree exactly."""
    name = f"clock {place}"
    detail = f"Redis' clock is {away_seconds:+.2f} s from this machine's"
    fix = "run an NTP client on both machines"
    if abs(away_seconds) > CLOCK_FAIL_SECONDS:
        return fail(name, detail, fix)
    return warn(name, detail, fix) if abs(away_seconds) > CLOCK_WARN_SECONDS else ok(name, detail)


def _append_only(name: str, info: ServerInfo, durability: str) -> Finding:
    fix = "CONFIG SET appendonly yes, and the same in its configuration file"
    if info.get("aof_enabled"):
        if info.get("aof_last_write_status", "ok") != "ok":
            return fail(name, "cannot write its append-only file", "look at its disk and its log")
        return ok(name, "appendonly is on")
    if durability == "redis":
        return fail(name, "appendonly is off: with durability = redis a restart loses messages", fix)
    return warn(name, "appendonly is off: after a restart everything comes back from the journal, slowly", fix)


def _eviction(name: str, info: ServerInfo) -> Finding:
    policy = info.get("maxmemory_policy", "unknown")
    if policy == "noeviction":
        return ok(name, "maxmemory-policy is noeviction")
    fix = "CONFIG SET maxmemory-policy noeviction, and the same in its configuration file"
    detail = f"maxmemory-policy is {policy}: it may throw mail and jobs away"
    return fail(name, detail, fix) if info.get("maxmemory") else warn(name, f"{detail} once maxmemory is set", fix)


def _version(info: ServerInfo) -> str:
    if "valkey_version" in info:
        return f"Valkey {info['valkey_version']}"
    return f"{info.get('redis_version', 'unknown')}"
