"""Dead letters in bulk, from the command line and the dashboard: all that matched, oldest first, and a store that goes away loses no count."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from keyturn.dashboard.access import Role
from shared.door import accept
from shared.errors import Unavailable
from shared.mail import encode_mail
from shared.operating import dead_bulk, dead_letters
from shared.operating.audit import Operator
from shared.operating.dead_bulk import LetterAction, LetterFilter, bulk_run, go_on, matching_letters
from shared.pipeline import Pipeline
from tests.flow.test_cli import Cli, cli, environment, lone_cli  # noqa: F401
from tests.store.books import ask
from tests.support.dashboard import Visitor, visiting
from tests.support.pipe import an_inbound, key_of

WANTED = LetterFilter(reason="agent failed")
OPERATOR = Operator("ann", "admin")


@pytest.fixture
async def admin(pipe: Pipeline) -> AsyncIterator[Visitor]:
    async with visiting(pipe) as visitor:
        await visitor.enter(Role.ADMIN)
        yield visitor


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_bulk, "AT_ONCE", 4)


async def set_aside(pipe: Pipeline, count: int, reason: str = "agent failed") -> None:
    for n in range(count):
        inbound = an_inbound(f"m{n}", chat=f"c{n}")
        payload = encode_mail(inbound).decode()
        await pipe.store.dead.set_aside("inbound", inbound.id, key_of(f"c{n}"), reason, "", payload)


async def states(pipe: Pipeline) -> list[str]:
    return [row["state"] for row in await ask(pipe.store, "SELECT state FROM dead ORDER BY id")]


def away_at(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Let a store be away once: when the letter with this place is replayed."""
    real, calls = accept, 0

    async def accepting(*args: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == times:
            raise Unavailable("PostgreSQL: AdminShutdown")
        return await real(*args, **more)

    monkeypatch.setattr(dead_letters, "accept", accepting)


async def test_a_run_takes_the_oldest_first_and_none_that_came_after_it_was_counted(pipe: Pipeline) -> None:
    await set_aside(pipe, 6)
    await set_aside(pipe, 1, "something else")
    found = await matching_letters(pipe.store, WANTED)
    assert (found.count, found.conversations) == (6, 6)
    await set_aside(pipe, 1)
    run = await go_on(pipe, bulk_run(LetterAction.DROP, WANTED, found), OPERATOR)
    assert await states(pipe) == ["dropped"] * 4 + ["open"] * 4
    assert (run.done, run.left, run.is_over) == (4, 2, False)
    run = await go_on(pipe, run, OPERATOR)
    assert (run.done, run.left, run.is_over) == (6, 0, True)
    assert await states(pipe) == ["dropped"] * 6 + ["open"] * 2


async def test_a_run_that_a_store_stopped_says_how_far_it_came_and_goes_on_there(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    await set_aside(pipe, 6)
    away_at(monkeypatch, 3)
    run = bulk_run(LetterAction.REPLAY, WANTED, await matching_letters(pipe.store, WANTED))
    run = await go_on(pipe, run, OPERATOR)
    assert (run.done, run.left, run.stopped) == (2, 4, "PostgreSQL: AdminShutdown")
    while not run.is_over:
        run = await go_on(pipe, run, OPERATOR)
    assert (run.done, run.failed, run.stopped) == (6, (), "") and await states(pipe) == ["replayed"] * 6


async def test_the_dashboard_goes_on_step_by_step_and_shows_how_far_it_is(pipe: Pipeline, admin: Visitor) -> None:
    await set_aside(pipe, 9)
    plan = await admin.act("/dead/bulk", action="replay", reason="agent failed")
    page = await admin.press(plan, "Replay these 9")
    assert "4 letters were replayed, 5 are left" in page.text
    assert any(tag == "div" and "data-go-on" in values for tag, values in page.elements)  # with script, by itself
    assert ("progress", "9", "4") in [(tag, has.get("max"), has.get("value")) for tag, has in page.elements]
    await set_aside(pipe, 1)
    page = await admin.press(page, "Go on")
    assert "8 letters were replayed, 1 are left" in page.text
    page = await admin.press(page, "Go on")
    assert "9 letters were replayed." in page.text and await states(pipe) == ["replayed"] * 9 + ["open"]


async def test_the_dashboard_says_what_was_done_when_a_store_stopped_it(
    pipe: Pipeline, admin: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    await set_aside(pipe, 6)
    away_at(monkeypatch, 3)
    page = await admin.press(await admin.act("/dead/bulk", action="replay", kind="inbound"), "Replay these 6")
    assert "2 letters were replayed, 4 are left" in page.text and "It stopped: PostgreSQL: AdminShutdown" in page.text
    # a store that is away is not asked all the time
    assert not any("data-go-on" in values for _, values in page.elements)
    page = await admin.press(page, "Go on")
    assert "6 letters were replayed." in page.text and await states(pipe) == ["replayed"] * 6


async def test_a_run_that_no_dry_run_made_is_refused(pipe: Pipeline, admin: Visitor) -> None:
    await set_aside(pipe, 1)
    fields = {"newest": 9, "count": 1, "after": 0, "done": 0, "failed": "[]"}
    for wrong in ({"newest": "x"}, {"failed": "{"}, {"failed": "[1]"}, {"failed": '[["x",1e300]]'}, {"reason": ""}):
        given = {"action": "drop", "reason": "agent failed", **fields, **wrong}
        assert (await admin.post("/dead/bulk/run", **given)).status_code == 409
    assert await states(pipe) == ["open"]


async def test_a_command_deals_with_all_that_match_and_says_how_far_it_is(pipe: Pipeline, cli: Cli) -> None:  # noqa: F811
    await set_aside(pipe, 9)
    assert (
        "9 open dead letters of 9 conversations match"
        in (await cli("dead", "drop-all", "--kind", "inbound", "--dry-run")).out
    )
    assert await states(pipe) == ["open"] * 9
    refused = await cli("dead", "replay-all", "--dry-run")
    assert refused.code == 1 and "name a kind, a reason or a key; `keyturn dead list` shows them" in refused.err
    said = await cli("dead", "replay-all", "--reason", "agent failed")
    assert said.code == 0 and "replay: 9 done" in said.out and await states(pipe) == ["replayed"] * 9
    assert said.err.splitlines() == ["4 of 9 dead letters", "8 of 9 dead letters", "9 of 9 dead letters"]


async def test_a_command_that_a_store_stopped_says_what_is_left_and_the_next_goes_on(
    pipe: Pipeline,
    cli: Cli,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await set_aside(pipe, 6)
    away_at(monkeypatch, 6)
    said = await cli("dead", "replay-all", "--kind", "inbound", "--json")
    assert said.code == 1 and "stopped with 1 left: PostgreSQL: AdminShutdown" in said.err
    assert said.json["result"] == {"done": 5, "failed": [], "left": 1, "stopped": "PostgreSQL: AdminShutdown"}
    said = await cli("dead", "replay-all", "--kind", "inbound")
    assert said.code == 0 and "replay: 1 done" in said.out and await states(pipe) == ["replayed"] * 6
