"""What agents promise, shown with real processes in a small size. `./run agents` shows the same in full, with the times."""

from __future__ import annotations

from pathlib import Path

from tests.agents.busy import show_busy
from tests.agents.faults import show_faults
from tests.agents.mcp import show_mcp
from tests.agents.questions import show_questions
from tests.agents.schedule import show_schedule
from tests.agents.stop import show_stop


async def test_messages_at_a_running_turn_end_as_their_mode_says_with_sender_and_turn_in_different_processes(
    database_url: str, tmp_path: Path
) -> None:
    _, verdict = await show_busy(tmp_path / "busy", database_url, 10)
    assert verdict.broken == []


async def test_ag22_a_stop_from_another_process_ends_whatever_hangs_and_the_key_goes_on(
    database_url: str, tmp_path: Path
) -> None:
    _, verdict = await show_stop(tmp_path / "stop", database_url)
    assert verdict.broken == []


async def test_ag1_questions_hold_nothing_and_survive_the_death_of_every_process(
    database_url: str, tmp_path: Path
) -> None:
    _, verdict = await show_questions(tmp_path / "questions", database_url, 20)
    assert verdict.broken == []


async def test_ag48_every_second_has_one_run_that_is_delivered_once_though_a_housekeeper_is_killed(
    database_url: str, tmp_path: Path
) -> None:
    _, verdict = await show_schedule(tmp_path / "schedule", database_url, 6)
    assert verdict.broken == []


async def test_ag41_ag42_ag45_turns_share_one_mcp_server_that_comes_back_and_ends_with_its_worker(
    database_url: str, tmp_path: Path
) -> None:
    _, verdict = await show_mcp(tmp_path / "mcp", database_url, 10)
    assert verdict.broken == []


async def test_kills_pauses_and_errors_at_every_failpoint_of_agents_lose_double_and_repeat_nothing(
    database_url: str, tmp_path: Path
) -> None:
    _, verdict = await show_faults(tmp_path / "faults", database_url, 4)
    assert verdict.broken == []
