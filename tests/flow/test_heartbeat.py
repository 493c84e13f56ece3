"""The heartbeat: the agent looks after its open tasks by itself, and is left alone while there are none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from shared.pipeline import Pipeline, open_pipeline
from shared.schedules.heartbeat import ASKED, ID, NOTHING_OPEN, heartbeat_text
from shared.settings import ScheduleSettings, Settings
from shared.settings.schedules import HeartbeatSettings
from tests.store.books import ask
from tests.support.pipe import Rig
from workers.upkeep.heartbeat import Heartbeat
from workers.upkeep.schedules import DueSchedules

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
MINUTE = 60_000


def beating(file: Path, **changes: Any) -> ScheduleSettings:
    return ScheduleSettings(heartbeat=HeartbeatSettings(**{"every_minutes": 30, "file": file, **changes}))


async def passed(pipe: Pipeline, slot: int) -> None:
    """A housekeeper looks when that slot has come."""
    await DueSchedules(pipe, lambda: slot).look()


async def test_the_agent_is_asked_about_open_tasks_and_left_alone_while_there_are_none(
    make_settings: Callable[..., Settings], tmp_path: Path
) -> None:
    file = tmp_path / "HEARTBEAT.md"
    async with open_pipeline(make_settings(schedule=beating(file))) as pipe:
        for _ in range(2):
            await Heartbeat(pipe).look()
        schedule = await pipe.store.schedules.find(ID)
        assert schedule is not None and schedule.due_at is not None and schedule.due_at % (30 * MINUTE) == 0
        first = schedule.due_at
        await passed(pipe, first)
        file.write_text("# Tasks\n- [ ] water the plants\n")
        await passed(pipe, first + 30 * MINUTE)
        rows = await pipe.store.schedules.last_fires(ID, 10)
        assert [(row["state"], row["reason"]) for row in reversed(rows)] == [("skipped", NOTHING_OPEN), ("fired", None)]
        key = str(schedule.key(first))
        await Rig(pipe).run_turns(key)
        assert await Rig(pipe).transcript(key) == [
            said := f"{ASKED}\n\n# Tasks\n- [ ] water the plants",
            f"echo: {said}",
        ]
        assert [row["platform"] for row in await ask(pipe.store, "SELECT platform FROM outbox")] == ["schedule"]


async def test_the_schedule_follows_the_settings(make_settings: Callable[..., Settings], tmp_path: Path) -> None:
    for changes, expected in (
        ({"every_minutes": 30}, 30 * MINUTE),
        ({"every_minutes": 10}, 10 * MINUTE),
        ({"every_minutes": None}, None),
    ):
        async with open_pipeline(make_settings(schedule=beating(tmp_path / "none", **changes))) as pipe:
            await Heartbeat(pipe).look()
            found = await pipe.store.schedules.find(ID)
            assert (found is None) == (expected is None)
            assert found is None or str(found.rule) == f"every {expected} from 0"
    async with open_pipeline(make_settings(schedule=beating(tmp_path / "none"))) as pipe:
        await Heartbeat(pipe).look()
        assert await pipe.store.schedules.pause(ID, "by hand")
        await Heartbeat(pipe).look()
        found = await pipe.store.schedules.find(ID)
        assert found is not None and found.state == "paused"


def test_a_target_that_cannot_be_one_is_refused_at_the_start(database_url: str) -> None:
    with pytest.raises(ValidationError, match="HEARTBEAT__TO"):
        HeartbeatSettings(to=("no such:place:at:all:x",))


@pytest.mark.parametrize(
    ("written", "is_open"),
    [
        ("", False),
        ("# Tasks\n\n---\n", False),
        ("<!-- write\ntasks here -->\n## Open\n- [x] done\n* [X] done too", False),
        ("- [ ] open", True),
        ("call Ann", True),
        ("- [x] done\n- not done", True),
    ],
)
def test_headings_comments_and_what_is_ticked_off_are_no_open_tasks(
    written: str, is_open: bool, tmp_path: Path, database_url: str
) -> None:
    file = tmp_path / "tasks.md"
    file.write_text(written)
    assert bool(heartbeat_text(file)) is is_open
    assert heartbeat_text(tmp_path / "missing.md") == ""
