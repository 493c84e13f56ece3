"""The tour in README.md works as it stands there."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
import redis

from shared.embedded import child, running
from tests.support.place import KEYTURN, PATIENCE_SECONDS, ROOT, Place

README = (ROOT / "README.md").read_text()
SHOWN_ADDRESS = "localhost:8080"


class Tour:
    """The tour's own directory, and what README.md tells its reader to type there."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.directory = place.directory / "tour"
        place.write("run", f'#!/bin/sh\nexec {shlex.join(KEYTURN)} "$@"\n')
        (place.directory / "run").chmod(0o755)

    def block(self, begins: str) -> str:
        """The shell block of the tour that begins with this."""
        [found] = [text for text in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) if text.startswith(begins)]
        return str(found)

    def write_agent(self) -> None:
        [program] = re.findall(r"```python\n# mybot\.py\n(.*?)```", README, re.DOTALL)
        (self.directory / "mybot.py").write_text(program)

    def start(self, block: str, name: str) -> subprocess.Popen[bytes]:
        """Type a command that goes on; what it says is in the files `name`.out and `name`.err of the place."""
        with (self.place.directory / f"{name}.out").open("wb") as out, open(out.name[:-3] + "err", "wb") as err:
            return child.start(
                ["bash", "-c", block],
                dies_by=signal.SIGTERM,
                cwd=self.directory,
                env=self.place.environment,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
            )

    def type(self, block: str, directory: Path | None = None) -> str:
        """Type a command and wait for its end; what it said."""
        done = subprocess.run(
            ["bash", "-e", "-c", block],
            cwd=directory or self.directory,
            env=self.place.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def thinks(self, redis_url: str) -> bool:
        """Whether a worker is answering a message right now, as RQ knows it."""
        with redis.Redis.from_url(redis_url) as client:
            return any(client.zcard(f"rq:wip:turns-{partition}") for partition in range(2))


@pytest.fixture
def tour(tmp_path: Path) -> Iterator[Tour]:
    opened = Tour(Place(tmp_path, lease_seconds="3"))
    yield opened
    if running.held(opened.directory / ".keyturn"):
        opened.type("../run down --now")


def test_the_tour_ends_with_every_message_answered_once(tour: Tour) -> None:
    assert "echo: hello\n" in tour.type(tour.block("mkdir tour"), tour.place.directory)
    tour.write_agent()
    up = tour.start(tour.block("KEYTURN_API__KEYS").replace("../run up", "../run up --port 0"), "up")
    tour.place.until(lambda: tour.place.said("up").startswith("ready "), "up", up)
    here = running.find(tour.directory / ".keyturn")
    assert here is not None

    chat = tour.start(tour.block("../run chat\n"), "chat")
    assert chat.stdin is not None
    chat.stdin.write(b"does anything survive kill -9?\n")
    chat.stdin.close()
    tour.place.until(lambda: tour.thinks(here.redis_url), "up", up)
    tour.type(tour.block("pkill"))
    assert chat.wait(PATIENCE_SECONDS) == 0
    assert tour.place.said("chat") == "You said 5 words.\n"

    http, look = tour.block("curl").split("../run messages", 1)
    shown = tour.type(http.replace(SHOWN_ADDRESS, here.url.removeprefix("http://")))
    assert orjson.loads(shown)["session_key"] == "agent:main:api:dm:c1"
    tour.place.until(lambda: "answered" in tour.type("../run messages trace evt_1"), "up", up)
    looked = tour.type("../run messages" + look)
    assert "committed" in looked and "agent:main:api:dm:c1" in looked and "agent:main:local:dm:terminal" in looked

    assert "stopped" in tour.type(tour.block("../run down"))
    assert up.wait(PATIENCE_SECONDS) == 0
