"""What becomes of the answer of a scheduled turn: a file, its targets, and when it counts as undeliverable."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from shared.errors import Undeliverable
from shared.messages import Part, Source
from shared.pipeline import Pipeline
from shared.settings import Settings
from shared.targets import parse_targets
from tests.flow.test_schedules import ANN, ANN_SPEAKS, DM, NOON, MakeSettings, a_schedule, keep, telegram
from tests.store.books import ask
from tests.support.servers import Databases
from tests.support.telegram import FakeTelegram, open_telegram
from workers.delivery.schedule import ScheduleSender

CHAT, UNKNOWN = f"telegram:{ANN}", "slack:C1"  # Slack is not connected


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


@pytest.fixture
async def fake() -> AsyncIterator[FakeTelegram]:
    async with open_telegram() as opened:
        yield opened


@pytest.fixture
def settings(make_settings: MakeSettings, fake: FakeTelegram) -> Settings:
    return make_settings(telegram=telegram(fake))


def a_part(text: str = "hello", event: str = f"sch_1:{NOON}") -> Part:
    source = Source("schedule", "sch_1", user="sch_1")
    return Part(1, "out_turn_1_1", "agent:main:schedule:dm:sch_1", source, (event,) if event else (), 1, 1, text)


async def told(pipe: Pipeline) -> list[str]:
    """The conversations to which an announcement was brought."""
    rows = await ask(pipe.store, "SELECT session_key FROM inbox ORDER BY received_at")
    return [row["session_key"] for row in rows]


@pytest.mark.parametrize(
    ("targets", "is_saved", "chats", "refusal"),
    [
        (["local"], True, 0, None),
        (["local"], False, 0, "the file could not be written"),
        (["origin"], False, 0, "the file could not be written"),  # nobody asked for it in a chat: its origin is a file
        ([CHAT], True, 1, None),
        ([CHAT], False, 1, None),
        (["local", CHAT], False, 1, None),
        ([UNKNOWN], True, 0, f"{UNKNOWN}: "),
        ([UNKNOWN, CHAT], True, 1, None),
        (["local", UNKNOWN], True, 0, None),  # the file is there
        (["local", UNKNOWN], False, 0, f"{UNKNOWN}: "),
        (["local", UNKNOWN, CHAT], False, 1, None),
    ],
)
async def test_an_answer_is_delivered_where_its_file_or_one_target_has_it(
    pipe: Pipeline, tmp_path: Path, targets: list[str], is_saved: bool, chats: int, refusal: str | None
) -> None:
    await keep(pipe, a_schedule(targets=parse_targets(targets)))
    if not is_saved:
        (tmp_path / "cron").write_text("a file where the directory should be")
    sender = ScheduleSender(pipe)
    if refusal is None:
        receipt = await sender.send(a_part())
        assert bool(receipt.message_id) == bool(chats)
    else:
        with pytest.raises(Undeliverable, match=refusal):
            await sender.send(a_part())
    assert await told(pipe) == [DM] * chats
    assert len(list(tmp_path.glob("cron/output/sch_1/*.md"))) == is_saved


async def test_an_answer_for_its_origin_goes_to_the_chat_that_asked(pipe: Pipeline) -> None:
    await keep(pipe, a_schedule(origin=ANN_SPEAKS, owner=f"telegram:u={ANN}", targets=parse_targets(["origin"])))
    await ScheduleSender(pipe).send(a_part())
    assert await told(pipe) == [DM]


async def test_of_a_person_who_is_no_admin_any_more_the_answer_reaches_their_own_chat_only(pipe: Pipeline) -> None:
    targets = parse_targets(["origin", "telegram:42"])
    await keep(pipe, a_schedule(origin=ANN_SPEAKS, owner=f"telegram:u={ANN}", targets=targets))
    await ScheduleSender(pipe).send(a_part())
    assert await told(pipe) == [DM]


@pytest.mark.parametrize(
    ("text", "receipt"), [("[SILENT]", "silent"), (" (silent)\n", "silent"), (".", "silent"), (" \n", "")]
)
async def test_an_answer_that_says_nothing_is_a_file_and_no_message(
    pipe: Pipeline, tmp_path: Path, text: str, receipt: str
) -> None:
    await keep(pipe, a_schedule(targets=parse_targets([CHAT, "local"])))
    assert (await ScheduleSender(pipe).send(a_part(text))).message_id == receipt
    assert await told(pipe) == [] and len(list(tmp_path.glob("cron/output/sch_1/*.md"))) == 1


async def test_an_answer_that_says_nothing_and_has_no_file_either_is_no_failure_where_nobody_wants_the_file(
    pipe: Pipeline, tmp_path: Path
) -> None:
    (tmp_path / "cron").write_text("a file where the directory should be")
    await keep(pipe, a_schedule(targets=parse_targets([CHAT])))
    assert (await ScheduleSender(pipe).send(a_part(" \n"))).message_id == ""
    assert await told(pipe) == []


async def test_the_answer_of_a_schedule_that_was_removed_goes_nowhere(pipe: Pipeline, tmp_path: Path) -> None:
    assert (await ScheduleSender(pipe).send(a_part())).message_id == "removed"
    assert await told(pipe) == [] and not (tmp_path / "cron").exists()


@pytest.mark.parametrize(
    ("event", "slot"),
    [
        (f"sch_1:{NOON}", "2090-01-01T12:00"),
        (f"sch_1:{NOON}#replay_2", "2090-01-01T12:00"),  # a run that was replayed is of the same slot
        ("something else", "20"),  # now
        ("", "20"),
    ],
)
async def test_the_file_says_for_which_slot_the_turn_ran(pipe: Pipeline, tmp_path: Path, event: str, slot: str) -> None:
    await keep(pipe, a_schedule(targets=parse_targets(["local", CHAT])))
    await ScheduleSender(pipe).send(a_part(event=event))
    [file] = tmp_path.glob("cron/output/sch_1/*.md")
    lines = file.read_text().splitlines()
    assert lines[1:3] == ["schedule: news", "id: sch_1"] and lines[3].startswith(f"slot: {slot}")
    assert lines[4] == f"to: local, {CHAT}" and lines[-1] == "hello"


async def test_an_attempt_that_is_repeated_writes_the_same_file_and_tells_nobody_twice(
    pipe: Pipeline, tmp_path: Path
) -> None:
    await keep(pipe, a_schedule(targets=parse_targets([CHAT])))
    sender = ScheduleSender(pipe)
    receipts = [await sender.send(a_part()) for _ in range(2)]
    assert receipts[0] == receipts[1]
    await sender.send(replace(a_part(), idempotency_key="out_turn_2_1"))  # the answer of another run
    assert len(await told(pipe)) == 2 and len(list(tmp_path.glob("cron/output/sch_1/*.md"))) == 2
