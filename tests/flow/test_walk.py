"""The walk of a webhook message in docs/architecture.md is the one that a message takes."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import httpx
import uvicorn
from pydantic import SecretStr

from producers.server.app import build_app
from producers.server.bind import bind
from producers.server.process import server_config
from shared.pipeline import Pipeline, open_pipeline
from shared.platforms.webhook import WebhookSettings
from shared.settings import Settings
from tests.conftest import WEBHOOK_SECRET
from tests.support.door import a_body, signed
from tests.support.pipe import Rig
from tests.support.platform import Platform, open_platform
from tests.support.working import working

ROOT = Path(__file__).parents[2]
PAGE = (
    (ROOT / "docs/architecture.md").read_text().partition("## The walk of a webhook message\n")[2].partition("\n## ")[0]
)
WALK = re.findall(r"^\| \d+ \| `([^`]+)`", PAGE.partition("| step |")[0], re.MULTILINE)
NAMED = set(re.findall(r"`((?:producers|workers|shared)/[^`]+)`", PAGE))


async def test_a_webhook_message_enters_the_files_of_the_walk_in_their_order(
    make_settings: Callable[..., Settings],
) -> None:
    entered = await _entered_by_a_message(make_settings)
    assert len(WALK) <= 15
    assert [path for path in entered if path in WALK] == WALK


async def test_every_file_that_a_webhook_message_enters_is_named_in_its_walk(
    make_settings: Callable[..., Settings],
) -> None:
    """Values, stores and lanes are in `shared`, and what a worker does beside its turns in `workers/process`."""
    entered = await _entered_by_a_message(make_settings)
    steps = {path for path in entered if path.startswith(("producers/", "workers/"))}
    assert {path for path in steps - NAMED if not path.startswith("workers/process/")} == set()
    assert {path for path in NAMED if not (ROOT / path).exists()} == set()


async def _entered_by_a_message(make_settings: Callable[..., Settings]) -> list[str]:
    """The files that a signed request enters on its way to the callback, in the order in which it first does.

    It is the second message: what is done once for a process or a conversation was done for the first.
    """
    async with open_platform(WEBHOOK_SECRET) as platform:
        webhook = WebhookSettings(secrets=(SecretStr(WEBHOOK_SECRET),), callback_url=platform.url)
        async with (
            open_pipeline(make_settings(webhook=webhook)) as pipe,
            working(pipe, keep=False),
            _receiver(pipe) as url,
        ):
            await _answered(url, platform, "evt_1")
            while await Rig(pipe).residue():  # the receipt of its reply
                await asyncio.sleep(0.01)
            with _entered() as files:
                await _answered(url, platform, "evt_2")
    return files


@asynccontextmanager
async def _receiver(pipe: Pipeline) -> AsyncIterator[str]:
    """The server that `keyturn receive` runs: where its webhooks are posted to."""
    listening = bind("127.0.0.1", 0)
    server = uvicorn.Server(server_config(build_app(pipe), pipe.settings))
    serving = asyncio.create_task(server._serve([listening]))
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/webhooks/webhook"
    server.should_exit = True
    await serving


async def _answered(url: str, platform: Platform, id: str) -> None:
    before, body = len(platform.callbacks), a_body(id=id)
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client, asyncio.timeout(60):
        assert (await client.post(url, content=body, headers=signed(body, id))).status_code == 200
        while len(platform.callbacks) == before:
            await asyncio.sleep(0.01)


@contextmanager
def _entered() -> Iterator[list[str]]:
    """Collects files of which a function is called from another file, in the order of their first call."""
    files: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and (path := _path(frame.f_code)) is not None and path not in files:
            files[path] = None

    found = list[str]()
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        found += files


def _path(code: CodeType) -> str | None:
    path = Path(code.co_filename)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) and ".venv" not in path.parts else None
