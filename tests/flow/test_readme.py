"""What README.md shows works as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from shared.embedded import running
from tests.conftest import WEBHOOK_SECRET
from tests.support.place import PATIENCE_SECONDS, ROOT, Place

SHOWN_ADDRESS = "http://localhost:8080"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    opened = Place(tmp_path, webhook__secrets=WEBHOOK_SECRET, webhook__callback_url="http://127.0.0.1:9/replies")
    yield opened
    opened.close()


def program(name: str) -> str:
    """The Python program that begins with a comment of this name."""
    [found] = re.findall(rf"```python\n(# {re.escape(name)}.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return str(found)


def test_the_program_that_sends_a_signed_message_sends_one_that_is_answered(place: Place) -> None:
    place.up()
    here = running.find(place.directory / ".keyturn")
    assert here is not None
    shown = program("send.py")
    assert SHOWN_ADDRESS in shown
    place.write("send.py", shown.replace(SHOWN_ADDRESS, here.url))
    sent = subprocess.run(
        [sys.executable, "send.py"],
        cwd=place.directory,
        env=place.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert sent.returncode == 0, sent.stderr
    assert orjson.loads(sent.stdout)["status"] == "accepted"
    place.until(lambda: "committed" in place.run("messages", "trace", "evt_2").stdout)
