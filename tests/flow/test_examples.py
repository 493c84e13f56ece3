"""The programs in docs/examples run through the real pipeline as they stand there."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from shared.embedded import child, running
from tests.conftest import WEBHOOK_SECRET
from tests.support.openai import KEY, MODEL, Asked, open_provider
from tests.support.place import PATIENCE_SECONDS, ROOT, Place

EXAMPLES = ROOT / "docs" / "examples"


def place_with(directory: Path, *examples: str, **settings: str) -> Place:
    """An empty directory with copies of these examples."""
    for example in examples:
        shutil.copy(EXAMPLES / example, directory)
    return Place(directory, **settings)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    opened = place_with(
        tmp_path, "function_agent.py", "custom_command/keyturn.toml", "send.py", "send.sh", "callback.py"
    )
    yield opened
    opened.close()


def asked(place: Place, text: str) -> str:
    """What the terminal shows for one question."""
    done = place.run("chat", "-m", text)
    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip("\n")


def test_the_function_answers_and_the_settings_file_adds_its_commands(place: Place) -> None:
    place.up("--agent", "function_agent:answer")
    assert asked(place, "to be or not") == "4 words, and backwards they read: ton ro eb ot"
    assert asked(place, "/hours") == "9 to 17, closed on Sunday."
    assert asked(place, "/translate bonjour").startswith("4 words, and backwards they read: ruojnob :hsilgnE")
    assert "/hours [words] — When we are open" in asked(place, "/help")


@pytest.mark.parametrize(("client", "chat"), [((sys.executable, "send.py"), "c1"), (("sh", "send.sh"), "c2")])
def test_a_client_sends_a_signed_message_and_the_callback_takes_the_signed_reply(
    place: Place, client: tuple[str, ...], chat: str
) -> None:
    port = child.free_port()
    settings = {"webhook__secrets": WEBHOOK_SECRET, "webhook__callback_url": f"http://127.0.0.1:{port}/"}
    place.environment |= {f"KEYTURN_{name.upper()}": value for name, value in settings.items()}
    callback = start_callback(place, port)
    try:
        place.up("--agent", "function_agent:answer")
        sent = send(place, client, "to be or not")
        assert sent["status"] == "accepted"
        place.until(lambda: place.said("callback") != "", "up")
        assert place.said("callback") == f"{chat}: 4 words, and backwards they read: ton ro eb ot\n"
        place.until(lambda: "committed" in place.run("messages", "trace", sent["id"]).stdout)
        place.until(lambda: "sent 1/1" in place.run("messages", "trace", sent["id"]).stdout)
    finally:
        child.stop(callback, signal.SIGTERM, 10)


def start_callback(place: Place, port: int) -> subprocess.Popen[bytes]:
    with (place.directory / "callback.out").open("wb") as out:
        command = [sys.executable, "callback.py", str(port)]
        return child.start(command, cwd=place.directory, env=place.environment, stdout=out, stderr=subprocess.DEVNULL)


def send(place: Place, client: tuple[str, ...], text: str) -> dict[str, Any]:
    here = running.find(place.directory / ".keyturn")
    assert here is not None
    sent = subprocess.run(
        [*client, text, f"{here.url}/webhooks/webhook"],
        cwd=place.directory,
        env=place.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert sent.returncode == 0, sent.stderr
    answered: dict[str, Any] = orjson.loads(sent.stdout)
    return answered


def shop_model(asked: Asked) -> str | dict[str, Any]:
    """A model that looks the hours up, and says what it read and what it was asked before."""
    messages = asked.body["messages"]
    if messages[-1]["role"] == "tool":
        before = [message["content"] for message in messages if message["role"] == "user"]
        return f"We are {messages[-1]['content']}. You asked: {' / '.join(before)}"
    function = {"name": "opening_hours", "arguments": '{"day": "Sunday"}'}
    return {"content": "", "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}


async def test_the_pydantic_ai_agent_calls_its_tool_and_knows_its_history(tmp_path: Path) -> None:
    async with open_provider(answer=shop_model) as provider:
        place = place_with(tmp_path, "tool_agent.py")
        place.environment |= {"SHOP_MODEL": MODEL, "SHOP_URL": provider.url, "SHOP_KEY": KEY}
        try:
            await asyncio.to_thread(lambda: place.up("--agent", "tool_agent:ShopAgent"))
            assert await asyncio.to_thread(lambda: asked(place, "Sunday?")) == "We are closed. You asked: Sunday?"
            assert (await asyncio.to_thread(lambda: asked(place, "Sure?"))).endswith("You asked: Sunday? / Sure?")
        finally:
            await asyncio.to_thread(place.close)
        assert [tool["function"]["name"] for tool in provider.requests[0].body["tools"]] == ["opening_hours"]
