"""A platform that answers 429 to everything: what is asked of it meanwhile, and what becomes of the replies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from shared.settings import Settings
from tests.support.servers import Databases
from tests.support.storm import Storm, run_storm

SHORT = Storm(seconds=2.0, chats=80, messages=2, per_second=40)  # the long form: ./run faults --storm 60


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


async def test_in_a_storm_of_429_no_more_is_asked_than_the_budget_allows_and_every_reply_comes_in_order(
    make_settings: Callable[..., Settings],
) -> None:
    """Two workers share the budget. Replies on another platform are delivered while the storm lasts."""
    outcome = await run_storm(make_settings, SHORT)
    assert outcome.holds, outcome
    assert outcome.refused > 0 and outcome.others_delivered == SHORT.chats
