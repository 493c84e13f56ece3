"""One listener at a time: who leads, who follows, and how the lead passes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from shared import leader
from shared.leader import LEAD, RESIGN, Leader
from shared.pipeline import Pipeline
from tests.lane import test_headers as headers

NAME = "kt:listener:test:1"
SCRIPTS = sorted(Path(leader.__file__).parent.glob("*.lua"))


def a_leader(pipe: Pipeline, *, every: float = 0.05, ttl: float = 30) -> Leader:
    return Leader(pipe.servers, NAME, ttl=timedelta(seconds=ttl), every=timedelta(seconds=every))


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.01)


async def test_the_first_leads_and_who_resigns_is_followed_at_once(pipe: Pipeline) -> None:
    async with a_leader(pipe) as second:
        await second.leads.wait()
        await pipe.servers.all[0].client.set(NAME, "another")
        await until(second.lost.is_set)
        assert await pipe.servers.all[0].call(RESIGN, [NAME], ["another"]) == 1
        async with asyncio.timeout(20):  # its lead would have lasted for longer
            await second.leads.wait()
    assert await pipe.servers.all[0].client.get(NAME) is None


async def test_of_several_one_leads(pipe: Pipeline) -> None:
    async with a_leader(pipe) as first, a_leader(pipe) as second, a_leader(pipe) as third:
        several = (first, second, third)
        await until(lambda: any(one.leads.is_set() for one in several))
        assert sum(one.leads.is_set() for one in several) == 1
        assert all(one.lost.is_set() != one.leads.is_set() for one in several)


async def test_a_lead_that_another_took_is_lost(pipe: Pipeline) -> None:
    async with a_leader(pipe) as mine:
        await mine.leads.wait()
        await pipe.servers.all[0].client.set(NAME, "another")
        await until(mine.lost.is_set)
        assert not mine.leads.is_set()
    assert await pipe.servers.all[0].client.get(NAME) == b"another"  # not ours to give up


async def test_a_lead_that_redis_forgot_is_taken_again(pipe: Pipeline) -> None:
    async with a_leader(pipe) as mine:
        await mine.leads.wait()
        await pipe.servers.all[0].client.flushall()
        async with asyncio.timeout(60):
            while await pipe.servers.all[0].client.get(NAME) is None:
                await asyncio.sleep(0.01)
        assert mine.leads.is_set()


async def test_a_lead_runs_out_with_its_process(pipe: Pipeline) -> None:
    call = pipe.servers.all[0].call
    assert await call(LEAD, [NAME], ["dead", 50]) == 1
    async with a_leader(pipe) as heir:
        async with asyncio.timeout(60):
            await heir.leads.wait()
    assert await call(RESIGN, [NAME], ["dead"]) == 0


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_scripts_are_as_their_headers_say(path: Path) -> None:
    headers.test_a_file_opens_with_its_purpose_and_includes_files_that_exist(path)
    for which in ("KEYS", "ARGV"):
        headers.test_a_header_names_every_key_and_argument_and_no_other(path, which)
    headers.test_names_in_the_body_are_those_of_the_header(path)
    headers.test_a_header_says_what_is_returned(path)
