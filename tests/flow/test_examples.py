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
from tests.support.openai import KEY, MODEL, Asked, a_call, open_provider
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
        tmp_path, "function_agent.py", "custom_command/keyturn.toml", "send.py", "send.sh", "callback.py", "chat.py"
    )
    yield opened
    opened.close()


def test_a_client_that_is_refused_says_so_in_one_line(place: Place) -> None:
    place.environment |= {"KEYTURN_WEBHOOK__SECRETS": WEBHOOK_SECRET, "KEYTURN_API__KEYS": "a-key-that-nobody-guesses"}
    place.up()
    here = place.said("up").split()[1]
    place.environment |= {
        "KEYTURN_WEBHOOK__SECRETS": "whsec_" + "A" * 32,
        "KEYTURN_API__KEYS": "another-key-that-is-wrong",
    }
    nowhere = f"http://127.0.0.1:{child.free_port()}/"
    for program, address, words in (
        ("send.py", f"{here}/webhooks/webhook", '/webhooks/webhook answers 401: {"error":"not authorised"}'),
        ("send.py", nowhere, "does not answer: "),
        ("chat.py", f"{here}/v1/chat/completions", "/v1/chat/completions answers 401: "),
        ("chat.py", nowhere, "does not answer: "),
    ):
        ended = subprocess.run(
            [sys.executable, program, "hello", address],
            cwd=place.directory,
            env=place.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1) and words in ended.stderr


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


def test_the_streaming_agent_answers_with_what_its_tool_said(tmp_path: Path) -> None:
    place = place_with(tmp_path, "streaming_agent.py")
    try:
        place.up("--agent", "streaming_agent:agent")
        assert asked(place, "to be or not") == "You said 4 words."
    finally:
        place.close()


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


def test_a_client_of_the_http_api_prints_the_answer_and_its_conversation_is_kept(tmp_path: Path) -> None:
    place = place_with(tmp_path, "function_agent.py", "chat.py")
    place.environment |= {"KEYTURN_API__KEYS": "a-key-that-nobody-guesses"}
    try:
        place.up("--agent", "function_agent:answer")
        here = running.find(place.directory / ".keyturn")
        assert here is not None
        said = subprocess.run(
            [sys.executable, "chat.py", "to be or not", f"{here.url}/v1/chat/completions"],
            cwd=place.directory,
            env=place.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert (said.returncode, said.stdout) == (0, "4 words, and backwards they read: ton ro eb ot\n"), said.stderr
        assert "to be or not" in place.run("sessions", "show", "agent:main:api:dm:c1").stdout
    finally:
        place.close()


def shop_model(asked: Asked) -> str | dict[str, Any]:
    """A model that looks the hours up, and says what it read and what it was asked before."""
    messages = asked.body["messages"]
    if messages[-1]["role"] == "tool":
        before = [message["content"] for message in messages if message["role"] == "user"]
        return f"We are {messages[-1]['content']}. You asked: {' / '.join(before)}"
    function = {"name": "opening_hours", "arguments": '{"day": "Sunday"}'}
    return {"content": "", "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}


async def test_the_llm_agent_calls_the_tools_of_a_module_in_the_directory_that_it_was_started_in(
    tmp_path: Path,
) -> None:
    async with open_provider(answer=shop_model) as provider:
        place = place_with(tmp_path, "shop_tools.py")
        llm = {"MODEL": MODEL, "BASE_URL": provider.url, "API_KEY": KEY, "TOOLS": "shop_tools"}
        place.environment |= {f"KEYTURN_LLM__{name}": value for name, value in llm.items()}
        try:
            await asyncio.to_thread(lambda: place.up("--agent", "llm"))
            assert await asyncio.to_thread(lambda: asked(place, "Sunday?")) == "We are closed. You asked: Sunday?"
        finally:
            await asyncio.to_thread(place.close)
        told = [tool["function"]["name"] for tool in provider.requests[0].body["tools"]]
    assert told == ["opening_hours", "order"]


@pytest.mark.parametrize("agent", ["tool_agent:agent", "openai_sdk_agent:agent", "graph_agent:graph"])
async def test_an_agent_of_another_library_calls_its_tool_and_knows_its_history(agent: str, tmp_path: Path) -> None:
    async with open_provider(answer=shop_model) as provider:
        place = place_with(tmp_path, f"{agent.partition(':')[0]}.py")
        place.environment |= {"SHOP_MODEL": MODEL, "SHOP_URL": provider.url, "SHOP_KEY": KEY}
        try:
            await asyncio.to_thread(lambda: place.up("--agent", agent))
            assert await asyncio.to_thread(lambda: asked(place, "Sunday?")) == "We are closed. You asked: Sunday?"
            assert (await asyncio.to_thread(lambda: asked(place, "Sure?"))).endswith("You asked: Sunday? / Sure?")
        finally:
            await asyncio.to_thread(place.close)
        assert [tool["function"]["name"] for tool in provider.requests[0].body["tools"]] == ["opening_hours"]


async def test_the_llm_agent_calls_the_tool_of_the_mcp_server(tmp_path: Path) -> None:
    def model(asked: Asked) -> str | dict[str, Any]:
        if asked.body["messages"][-1]["role"] == "tool":
            return f"We are {asked.last}."
        return {"content": "", "tool_calls": [a_call("shop__opening_hours", '{"day": "Sunday"}')]}

    async with open_provider(answer=model) as provider:
        place = place_with(tmp_path, "mcp_server.py")
        servers = orjson.dumps({"shop": {"line": f"{sys.executable} mcp_server.py", "start_seconds": 60}}).decode()
        llm = {"MODEL": MODEL, "BASE_URL": provider.url, "API_KEY": KEY, "MCP": servers}
        place.environment |= {f"KEYTURN_LLM__{name}": value for name, value in llm.items()}
        try:
            await asyncio.to_thread(lambda: place.up("--agent", "llm"))
            assert await asyncio.to_thread(lambda: asked(place, "Sunday?")) == "We are closed."
        finally:
            await asyncio.to_thread(place.close)


@pytest.mark.parametrize(
    ("line", "output"), [("sh command_agent.sh", "text"), (f"{sys.executable} command_events.py", "events")]
)
def test_a_program_answers(line: str, output: str, tmp_path: Path) -> None:
    program = line.rpartition(" ")[2]
    place = place_with(tmp_path, program)
    line = line.replace(program, str(tmp_path / program))
    place.environment |= {"KEYTURN_COMMAND__LINE": line, "KEYTURN_COMMAND__OUTPUT": output}
    try:
        place.up("--agent", "command")
        assert asked(place, "to be or not") == "You said 4 words."
    finally:
        place.close()


def test_a_server_answers(tmp_path: Path) -> None:
    port = child.free_port()
    place = place_with(tmp_path, "http_agent.py")
    place.environment |= {"KEYTURN_HTTP__URL": f"http://127.0.0.1:{port}/", "KEYTURN_HTTP__TOKEN": "secret"}
    server = child.start([sys.executable, "http_agent.py", str(port)], cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        place.up("--agent", "http")
        assert asked(place, "to be or not") == "You said 4 words."
    finally:
        child.stop(server, signal.SIGTERM, 10)
        place.close()
