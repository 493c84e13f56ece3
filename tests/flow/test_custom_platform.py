"""The platform of docs/examples/custom_platform: new files and one line in one list, and it is a platform like any other."""

from __future__ import annotations

import asyncio
import hmac
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import orjson
import pytest

from shared.embedded import running
from tests.contract.case import Answer
from tests.contract.fake_api import Request, open_api
from tests.support.place import ROOT, Place

EXAMPLE = ROOT / "docs/examples/custom_platform"
LIST = Path("shared/platforms/__init__.py")
TREE = ("producers", "workers", "shared", "keyturn", "tests")
SUITES = ("tests/contract", "tests/unit/test_platform_names.py")
SUITE_SECONDS = 600
TOKEN, SECRET = "token-1", "secret-1"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of Keyturn with the example's files in their places, and its line in the list."""
    copy = tmp_path_factory.mktemp("tree")
    for top in TREE:
        shutil.copytree(ROOT / top, copy / top, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    added = [path.relative_to(EXAMPLE) for path in EXAMPLE.rglob("*.*") if path.name != "README.md"]
    for path in (path for path in added if "__pycache__" not in path.parts and (EXAMPLE / path).is_file()):
        assert not (copy / path).exists(), f"{path} is no new file"
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(EXAMPLE / path, copy / path)
    before = (copy / LIST).read_text()
    (copy / LIST).write_text(before.replace("_NAMES = (\n", '_NAMES = (\n    "plainchat",\n'))
    assert len((copy / LIST).read_text().splitlines()) == len(before.splitlines()) + 1
    return copy


@pytest.mark.timeout(SUITE_SECONDS + 60)
def test_the_example_keeps_every_promise_of_both_suites(tree: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-k", "plainchat", "-p", "no:cacheprovider", *SUITES]
    ended = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=SUITE_SECONDS)
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]


@pytest.fixture
async def place(tree: Path, tmp_path: Path) -> AsyncIterator[Place]:
    opened = Place(tmp_path, plainchat__secrets=SECRET, plainchat__token=TOKEN, plainchat__allowed_users="ann")
    opened.environment["PYTHONPATH"] = str(tree)
    yield opened
    await asyncio.to_thread(opened.close)


async def test_a_signed_request_is_answered_in_its_room(place: Place) -> None:
    """Through the processes that `keyturn up` starts."""
    sent: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    def take(request: Request) -> Answer:
        assert request.headers["authorization"] == f"Bearer {TOKEN}"
        sent.put_nowait((request.path, orjson.loads(request.body)["text"]))
        return Answer(200, b'{"id": "m9"}')

    async with open_api(take) as chat:
        await asyncio.to_thread(lambda: place.up("--agent", "echo", plainchat__api_url=chat.url))
        here = running.find(place.directory / ".keyturn")
        assert here is not None
        body = (EXAMPLE / "tests/payloads/plainchat/direct.json").read_bytes()
        at = str(int(time.time()))
        signature = hmac.digest(SECRET.encode(), at.encode() + b"." + body, "sha256").hex()
        headers = {"x-plainchat-time": at, "x-plainchat-signature": signature}
        async with httpx.AsyncClient(base_url=here.url, timeout=60, trust_env=False) as client:
            forged = await client.post(
                "/webhooks/plainchat", content=body, headers={**headers, "x-plainchat-time": "1"}
            )
            answer = await client.post("/webhooks/plainchat", content=body, headers=headers)
        assert (forged.status_code, answer.status_code) == (401, 200)
        async with asyncio.timeout(120):
            assert await sent.get() == ("/rooms/room-1/messages", "echo: hello")
