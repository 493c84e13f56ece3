"""`keyturn messages drop`: an operator ends a message that waits or runs, and its key goes on."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from shared.clock import now_ms
from shared.door import accept
from shared.errors import Unavailable
from shared.operating.messages import NOTICE, NotPending, drop_message
from shared.pipeline import open_pipeline
from shared.settings import Settings
from tests.flow.test_cli import Cli, cli, environment, lone_cli  # noqa: F401 (fixtures)
from tests.flow.test_never_stuck import ended
from tests.store.books import write
from tests.support.pipe import Rig, an_inbound, control_key, key_of
from tests.support.working import working
from workers.agents.functions import FunctionAgent


async def row_of(rig: Rig, id: str) -> dict[str, Any]:
    row = await rig.pipe.store.journal.find(id)
    assert row is not None
    return row


async def told(rig: Rig) -> list[str]:
    return [part.text for part in await rig.pipe.store.outbox.open_parts("to:webhook:c1", 100)]


@pytest.mark.parametrize("tell", [True, False])
async def test_a_message_that_fails_and_waits_is_dropped_and_the_key_goes_on_at_once(rig: Rig, tell: bool) -> None:
    async def fails(text: str) -> str:
        if text == "poison":
            raise RuntimeError("no")
        return "fine"

    rig.agent = FunctionAgent(fails)
    poison, behind = await rig.accept("poison"), await rig.accept("next")
    await rig.run_turns()  # it failed, and its key waits for the next attempt
    dropped = await drop_message(rig.pipe, poison.id, tell=tell)
    assert (dropped.session_key, dropped.told, dropped.note) == (key_of(), tell, "")
    row = await row_of(rig, poison.id)
    assert (row["state"], row["reason"]) == ("rejected", "operator")
    await rig.run_turns()  # its wake is there, and no delay is left
    assert (await row_of(rig, behind.id))["state"] == "answered"
    assert await told(rig) == [*([NOTICE] if tell else []), "fine"]
    assert [name for name in await rig.residue() if name.startswith("kt:turns")] == []


@pytest.fixture(params=["journal", "redis"])
async def kept(request: pytest.FixtureRequest, make_settings: Callable[..., Settings]) -> AsyncIterator[Rig]:
    """A pipeline whose messages wait in the journal, and one whose messages only Redis knows."""
    async with open_pipeline(make_settings(durability=request.param)) as pipe:
        yield Rig(pipe)


async def test_a_message_that_waits_behind_another_is_dropped_and_the_running_turn_is_not_disturbed(kept: Rig) -> None:
    rig = kept
    first, middle, last = [await rig.accept(text) for text in ("one", "two", "three")]
    asked: list[str] = []

    async def drops(text: str) -> str:
        asked.append(text)
        if text == "one":
            await drop_message(rig.pipe, middle.id, tell=True)
        return f"echo: {text}"

    rig.agent = FunctionAgent(drops)
    await rig.run_turns()
    states = [(await row_of(rig, one.id))["state"] for one in (first, middle, last)]
    assert states == ["answered", "rejected", "answered"]
    assert asked == ["one", "three"]  # neither ran twice
    assert await rig.transcript() == ["one", "echo: one", "three", "echo: three"]
    assert await told(rig) == [NOTICE, "echo: one", "echo: three"]


async def _away(*_: object) -> None:
    raise Unavailable("Redis is away")


@pytest.mark.parametrize("discarded", [True, False])
async def test_a_photo_that_is_dropped_while_its_album_is_answered_is_in_no_answer(
    kept: Rig, monkeypatch: pytest.MonkeyPatch, discarded: bool
) -> None:
    """Whether or not Redis was there to hear of the drop."""
    rig, ids, asked = kept, list[str](), list[str]()
    for n in range(3):
        photo = replace(an_inbound(f"photo {n}"), album="a1", received_at=now_ms() - 5000)
        ids.append((await accept(rig.pipe, photo)).id)
    if not discarded:
        monkeypatch.setattr("shared.operating.messages.discard_mail", _away)

    async def drops(text: str) -> str:
        asked.append(text)
        if len(asked) == 1:
            await drop_message(rig.pipe, ids[-1], tell=True)
        return f"answer {len(asked)}"

    rig.agent = FunctionAgent(drops)
    await rig.run_turns()
    states = [(row["state"], row["reason"]) for row in [await row_of(rig, id) for id in ids]]
    assert states == [("answered", None), ("merged", None), ("rejected", "operator")]
    assert asked[:2] == ["photo 0\nphoto 1\nphoto 2", "photo 0\nphoto 1"]
    assert await rig.transcript() == ["photo 0\nphoto 1", "answer 2"]
    assert await told(rig) == [NOTICE, "answer 2"]
    assert [name for name in await rig.residue() if name.startswith("kt:turns")] == []


async def test_mail_that_the_journal_does_not_have_leaves_the_mailbox_and_the_key_goes_on(rig: Rig) -> None:
    await rig.accept("unknown")
    await write(rig.pipe.store, "DELETE FROM inbox WHERE session_key = :key", key=key_of())
    behind = await rig.accept("next")
    await rig.run_turns()
    assert (await row_of(rig, behind.id))["state"] == "answered"
    assert await rig.transcript() == ["next", "echo: next"]


async def test_a_running_message_is_dropped_and_its_turn_leaves_no_trace(rig: Rig) -> None:
    accepted, behind = await rig.accept("one"), await rig.accept("two")

    async def drops(text: str) -> str:
        if text == "one":
            await drop_message(rig.pipe, accepted.id, tell=False)
        return f"echo: {text}"

    rig.agent = FunctionAgent(drops)
    await rig.run_turns()
    await rig.run_turns()  # the key was taken from its worker and has a wake of its own
    assert (await row_of(rig, accepted.id))["state"] == "rejected"
    assert (await row_of(rig, behind.id))["state"] == "answered"
    assert await rig.transcript() == ["two", "echo: two"]
    assert await told(rig) == ["echo: two"]


async def test_a_worker_that_hangs_in_a_turn_loses_it_when_the_message_is_dropped(
    make_settings: Callable[..., Settings],
) -> None:
    began = asyncio.Event()

    async def hangs(text: str) -> str:
        if text == "hang":
            began.set()
            await asyncio.Event().wait()
        return f"echo: {text}"

    async with open_pipeline(make_settings(lease_seconds=1, heartbeat_seconds=0.3)) as pipe:
        rig = Rig(pipe)
        async with working(pipe, FunctionAgent(hangs)):
            hung, behind = await rig.accept("hang"), await rig.accept("next")
            await began.wait()
            await drop_message(pipe, hung.id, tell=False)
            rows = await ended(pipe, [hung.id, behind.id])
        assert [row["state"] for row in rows] == ["rejected", "answered"]
        assert await rig.transcript() == ["next", "echo: next"]


async def test_of_a_drop_and_a_turn_that_end_a_message_together_one_wins(rig: Rig) -> None:
    """Whoever loses says so: the operator hears that it was answered, or the turn leaves nothing."""
    for n in range(10):
        accepted = await rig.accept(str(n))
        lease = await rig.lease()
        _, dropped = await asyncio.gather(
            rig.turns(lease), drop_message(rig.pipe, accepted.id, tell=True), return_exceptions=True
        )
        row, rows = await row_of(rig, accepted.id), await rig.transcript()
        if isinstance(dropped, BaseException):
            assert isinstance(dropped, NotPending) and "answered" in str(dropped)
            assert row["state"] == "answered" and rows.count(f"echo: {n}") == 1
        else:
            assert row["state"] == "rejected" and str(n) not in rows
        while (job_id := await rig.pop(rig.pipe.turns, key_of())) is not None:
            if (again := (await rig.start_job(rig.pipe.turns, key_of(), job_id)).lease) is not None:
                await rig.turns(again)


async def test_a_message_that_only_redis_knows_is_dropped_too(make_settings: Callable[..., Settings]) -> None:
    async with open_pipeline(make_settings(durability="redis")) as pipe:
        rig = Rig(pipe)
        first, second, third = [await rig.accept(text) for text in ("one", "two", "three")]
        for one in (second, first):
            await drop_message(pipe, one.id, tell=False)
            assert (await row_of(rig, one.id))["state"] == "rejected"
        await rig.run_turns()
        assert await rig.transcript() == ["three", "echo: three"]
        with pytest.raises(NotPending, match="answered"):
            await drop_message(pipe, third.id, tell=False)


async def test_a_control_message_is_dropped_first_in_line_or_behind_another_and_leaves_no_session(kept: Rig) -> None:
    first, second, third = [await kept.accept(text) for text in ("/status", "/stop", "/status")]
    assert (await drop_message(kept.pipe, second.id, tell=True)).session_key == control_key(key_of())
    await drop_message(kept.pipe, first.id, tell=True)
    with pytest.raises(NotPending):
        await drop_message(kept.pipe, first.id, tell=True)
    await kept.run_turns()
    ended = [(await row_of(kept, one.id))["state"] for one in (first, second, third)]
    assert ended == ["rejected", "rejected", "answered"]
    assert [text == NOTICE for text in await told(kept)] == [True, True, False]
    assert await kept.pipe.store.sessions.listed(10) == []
    assert [name for name in await kept.residue() if name.startswith("kt:control")] == []


async def test_what_has_ended_or_is_unknown_cannot_be_dropped(rig: Rig) -> None:
    accepted = await rig.accept("one")
    await rig.run_turns()
    with pytest.raises(NotPending, match="it is answered"):
        await drop_message(rig.pipe, accepted.id, tell=True)
    with pytest.raises(NotPending, match="no message"):
        await drop_message(rig.pipe, "in_nobody", tell=True)
    assert await told(rig) == ["echo: one"]


async def test_the_command_asks_first_drops_once_and_speaks_json(
    rig: Rig,
    cli: Cli,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    accepted = await rig.accept("one", event_id="evt_drop")
    asked = await cli("messages", "drop", accepted.id)
    assert asked.code == 1 and "for good?" in asked.err
    assert (await row_of(rig, accepted.id))["state"] == "pending"
    done = (await cli("messages", "drop", "evt_drop", "--quiet", "--yes", "--json")).json
    assert (done["id"], done["state"], done["told"]) == (accepted.id, "rejected", False)
    again = await cli("messages", "drop", accepted.id, "--yes")
    assert again.code == 1 and "it is rejected" in again.err
    assert await told(rig) == []
