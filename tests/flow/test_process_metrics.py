"""Each process beside the receiver says on METRICS__PORT what it is, so that an alert comes where none of its kind is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from shared.embedded import child
from tests.support.place import Place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    opened = Place(tmp_path)
    yield opened
    opened.close()


def test_a_worker_a_housekeeper_and_a_dashboard_say_what_they_are(place: Place) -> None:
    place.up(dashboard__enabled="false")
    commands = {"worker": ["work"], "housekeeper": ["housekeep"], "dashboard": ["dashboard", "--port", "0"]}
    for kind, command in commands.items():
        port = child.free_port()
        process = place.start(kind, *command, metrics__port=str(port))

        def text(port: int = port) -> str:
            try:
                return httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False, timeout=60).text
            except httpx.TransportError:  # it does not listen yet
                return ""

        place.until(text, kind, process)
        said = [line for line in text().splitlines() if line.startswith("keyturn_process_info{")]
        assert said == [f'keyturn_process_info{{kind="{kind}"}} 1.0']
