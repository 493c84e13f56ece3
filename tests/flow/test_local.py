"""The `local` agent: a real model answers, in a world with no network but this machine's own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from shared.embedded import child
from tests.conftest import WEBHOOK_SECRET
from tests.flow.test_examples import place_with, send, start_callback

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 300
# A start-up file of Python: what connects through its sockets reaches this machine only.
OFFLINE = """
import socket
whole = socket.socket.connect
def connect(self, address):
    if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
        raise OSError(f"no network: {address[0]}")
    return whole(self, address)
socket.socket.connect = connect
socket.socket.connect_ex = lambda self, address: connect(self, address) or 0
"""
TURNS = """
import asyncio, orjson, sys
from shared.agent.turn import Turn
from shared.messages import Inbound, Source
from shared.agent.events import Delta
from workers.agents.reading import Reading
from workers.agents.resolve import resolve

async def main():
    agent = resolve("local")
    def turn(n, text):
        return Turn(f"t{n}", "agent:main:local:dm:c", "s", (), (Inbound(f"in_{n}", str(n), Source("local", "c"), text),))
    seen = [[], [], []]
    asked = [Reading(agent, turn(n, "Say hello to a friend."), seen[n].append) for n in range(3)]
    results = await asyncio.gather(*(one.result() for one in asked))
    pieces = [sum(isinstance(event, Delta) for event in events) for events in seen]
    lines = [
        {"text": r.replies[0].text, "usage": r.entries[0].data["usage"], "pieces": n}
        for r, n in zip(results, pieces, strict=True)
    ]
    sys.stdout.buffer.write(orjson.dumps(lines))

asyncio.run(main())
"""


@pytest.fixture
def offline(tmp_path: Path) -> dict[str, str]:
    """The environment of a process without a network, and with a proxy that it must not ask."""
    (tmp_path / "offline").mkdir()
    (tmp_path / "offline" / "sitecustomize.py").write_text(OFFLINE)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "offline"), str(ROOT)]),
        "HTTP_PROXY": "http://proxy.invalid:3128",
        "KEYTURN_LLM__MAX_OUTPUT_TOKENS": "24",
    }


def test_a_real_model_answers_offline_several_at_once(offline: dict[str, str], tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", TURNS], env=offline, cwd=tmp_path, capture_output=True, timeout=PATIENCE_SECONDS
    )
    assert ended.returncode == 0, ended.stderr.decode()[-2000:]
    answers = orjson.loads(ended.stdout)
    assert len(answers) == 3
    for answer in answers:
        assert answer["text"].strip() and answer["usage"]["input"] > 10
        assert answer["pieces"] > 1  # it is streamed
        assert 0 < answer["usage"]["output"] <= 24 and answer["usage"]["model"].startswith("SmolLM2")


def test_keyturn_chat_talks_with_the_local_model_offline(offline: dict[str, str], tmp_path: Path) -> None:
    """The whole pipeline in processes of its own: receiver, worker, housekeeper, Valkey, SQLite, and the model."""
    ended = subprocess.run(
        [sys.executable, "-m", "keyturn.cli", "chat", "--agent", "local"],
        input=b"Say hello to a friend.\n",
        env=offline,
        cwd=tmp_path,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
    )
    said = ended.stdout.decode()
    assert ended.returncode == 0, ended.stderr.decode()[-2000:]
    spoken = [
        line for line in said.splitlines() if line.strip() and not line.startswith(("starting", "Type a message"))
    ]
    assert spoken and not spoken[0].startswith(("Sorry", "echo:")), said + ended.stderr.decode()[-2000:]


def test_a_webhook_is_answered_by_the_local_model_offline_and_its_tokens_are_stored(
    offline: dict[str, str], tmp_path: Path
) -> None:
    place, port = place_with(tmp_path, "send.py", "callback.py"), child.free_port()
    place.environment |= {
        **offline,
        "KEYTURN_WEBHOOK__SECRETS": WEBHOOK_SECRET,
        "KEYTURN_WEBHOOK__CALLBACK_URL": f"http://127.0.0.1:{port}/",
        "KEYTURN_TITLES": "false",  # the model is asked for the answer alone
    }
    callback = start_callback(place, port)
    try:
        place.up("--agent", "local")
        place.environment["NO_PROXY"] = "127.0.0.1"  # of the program that sends
        send(place, (sys.executable, "send.py"), "Say hello to a friend.")
        place.until(lambda: place.said("callback") != "")
        assert place.said("callback").removeprefix("c1: ").strip()
        [used] = orjson.loads(place.run("usage", "--by", "model", "--json").stdout)
        assert used["requests"] == 1 and used["model"].startswith("SmolLM2")
        assert used["input"] > 10 and 0 < used["output"] <= 24
    finally:
        child.stop(callback, signal.SIGTERM, 10)
        place.close()
