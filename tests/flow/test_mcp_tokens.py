"""MCP servers with tokens of people: whose token a call carries, and how long a person's connection lives."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr, ValidationError

from shared.agent.turn import Turn
from shared.messages import Kind, OwnInbound, Source
from shared.settings import Settings
from shared.settings.agents import McpServer
from tests.flow.test_mcp import SECONDS, a_http_server, a_turn, an_agent, stdio, text_of
from tests.support.reading import answer_of
from workers.agents.llm import LlmAgent
from workers.agents.mcp.personal import PersonalServer
from workers.agents.mcp.server import ServerAway
from workers.agents.mcp.servers import SupervisedServers

TOKENS: dict[str, Any] = {"webhook:ann": "token-of-ann", "webhook:bob": "token-of-bob"}


def with_tokens(**settings: Any) -> McpServer:
    return stdio(environment={"SHOP_TOKEN": "is {token}"}, tokens=TOKENS, **settings)


def turn_of(user: str, text: str, **changes: Any) -> Turn:
    turn = a_turn(text)
    source = replace(turn.mail[0].source, user=user)
    return replace(turn, mail=(replace(turn.mail[0], source=source),), **changes)


async def said_to(agent: LlmAgent, user: str, text: str, **changes: Any) -> str:
    return text_of(await answer_of(agent, turn_of(user, text, **changes)))


@asynccontextmanager
async def overheard(url: str) -> AsyncIterator[tuple[str, list[tuple[str, str]]]]:
    """The server behind a line that is listened to: each call of a tool with the bearer token that it came with."""
    heard: list[tuple[str, str]] = []
    port = urlsplit(url).port

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, keep: bytearray | None) -> None:
        with suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(65536):
                if keep is not None:
                    keep += data
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        asked = bytearray()
        await asyncio.gather(pass_on(reader, back, asked), pass_on(there, writer, None))
        for request in bytes(asked).split(b"POST /mcp ")[1:]:
            head, _, body = request.partition(b"\r\n\r\n")
            token = re.search(rb"(?im)^authorization: Bearer (\S+)", head)
            called = re.search(rb'"a":\s*(\d+)', body)
            if called and b"tools/call" in body:
                heard.append((called[1].decode(), token[1].decode() if token else ""))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", heard
    finally:
        server.close()


async def test_ag46_no_call_carries_the_token_of_another_person() -> None:
    async with a_http_server() as (url, _), overheard(url) as (line, heard):
        headers: Any = {"Authorization": "Bearer {token}"}
        web = McpServer(url=line, start_seconds=SECONDS, headers=headers, tokens=TOKENS)
        async with an_agent(shop=with_tokens(), web=web) as agent:
            async with asyncio.timeout(SECONDS):
                users = ["ann", "bob"] * 10
                told = await asyncio.gather(*(said_to(agent, user, 'shop__token {"seconds": 0.05}') for user in users))
                assert told == [f"is token-of-{user}" for user in users]
                added = [(user, f'web__add {{"a": {n}, "b": 1}}') for n, user in enumerate(users)]
                sums = await asyncio.gather(*(said_to(agent, *each) for each in added))
                assert sums == [str(n + 1) for n in range(len(users))]
        async with asyncio.timeout(SECONDS):
            while len(heard) < len(users):
                await asyncio.sleep(0.02)
    assert dict(heard) == {str(n): f"token-of-{user}" for n, user in enumerate(users)}


async def test_ag46_whoever_approves_a_call_does_not_lend_it_their_token() -> None:
    ann = Source("webhook", "c1", user="ann")
    async with an_agent(shop=with_tokens()) as agent:
        assert await said_to(agent, "bob", 'shop__token {"seconds": 0}', asker=ann) == "is token-of-ann"


async def test_ag46_a_person_without_a_token_does_without_the_server() -> None:
    async with an_agent(shop=with_tokens()) as agent:
        assert await said_to(agent, "eve", "tools") == "none"
        assert "is token" not in await said_to(agent, "eve", 'shop__token {"seconds": 0}')
        turn = turn_of("ann", "tools")
        elsewhere = replace(turn.mail[0], source=replace(turn.mail[0].source, platform="telegram"))
        assert text_of(await answer_of(agent, replace(turn, mail=(elsewhere,)))) == "none"
        nobody = OwnInbound(
            "in_2", "e2", Source("schedule", "s1"), "tools", purpose=Kind.FIRE, owned_by="webhook:u=ann"
        )
        assert text_of(await answer_of(agent, replace(turn, mail=(nobody,)))) == "none"


async def test_each_person_is_told_once_that_their_own_server_is_away_whoever_talks_between() -> None:
    away = McpServer(line="false", environment={"SHOP_TOKEN": SecretStr("{token}")}, tokens=TOKENS)
    servers = SupervisedServers({"shop": away})
    try:
        told = [await servers.tools(Source("webhook", "c1", user=user)) for user in ("ann", "ann", "eve", "ann", "bob")]
    finally:
        await servers.close()
    assert [len(notices) for _, notices in told] == [1, 0, 0, 0, 1]


async def test_ag46_whoever_holds_an_api_key_reaches_the_tokens_of_its_own_people_only() -> None:
    tokens: Any = {"api:ann": "one", "api@shop:ann": "two", "telegram:42": "three"}
    server = PersonalServer("shop", stdio(environment={"T": "{token}"}, tokens=tokens))

    def found(platform: str, user: str, account: str) -> str:
        reached = server.of(Source(platform, "c1", user=user, account=account))
        return reached.config.environment["T"].get_secret_value() if reached is not None else ""

    assert [found("api", "ann", account) for account in ("", "shop", "other")] == ["one", "two", ""]
    assert [found("telegram", "42", account) for account in ("", "second")] == ["three", "three"]
    assert found("api", "shop:ann", "") == "" == found("api", "ann", "shop:ann")
    await server.close()


async def test_a_persons_program_ends_when_it_is_idle_and_the_next_call_starts_another() -> None:
    async with an_agent(shop=with_tokens(idle_seconds=0.2)) as agent:
        first = await said_to(agent, "ann", "shop__where")
        assert (
            await said_to(agent, "ann", 'shop__token {"seconds": 0.5}') == "is token-of-ann"
        )  # not while a call waits
        await asyncio.sleep(0.6)
        assert await said_to(agent, "ann", "shop__where") != first


async def test_no_more_people_than_allowed_have_a_program_and_whoever_is_idle_gives_theirs_up() -> None:
    async with an_agent(shop=with_tokens(most_people=1)) as agent:
        anns = await said_to(agent, "ann", "shop__where")
        assert await said_to(agent, "bob", 'shop__token {"seconds": 0}') == "is token-of-bob"
        assert await said_to(agent, "ann", "shop__where") != anns
        waiting = asyncio.create_task(said_to(agent, "ann", 'shop__token {"seconds": 2}'))
        await asyncio.sleep(0.8)
        result = await answer_of(agent, turn_of("bob", "tools"))
        assert [reply.text for reply in result.replies][-1] == "none"
        assert await waiting == "is token-of-ann"


async def test_a_turn_whose_program_was_given_up_meanwhile_starts_no_more_programs_than_allowed() -> None:
    shop = PersonalServer("shop", with_tokens(most_people=1))
    ann, bob = (shop.of(Source("webhook", "c1", user=user)) for user in ("ann", "bob"))
    assert ann is not None and bob is not None
    try:
        async with asyncio.timeout(SECONDS):
            await ann.tools()
            await bob.tools()
            assert (ann.is_open, bob.is_open) == (False, True)  # both turns go on
            assert (await ann.call("token", {"seconds": 0}, "k1")).is_error is False
            assert (ann.is_open, bob.is_open) == (True, False)
            waiting = asyncio.create_task(ann.call("token", {"seconds": 1}, "k2"))
            await asyncio.sleep(0.2)
            with pytest.raises(ServerAway, match="too many people"):
                await bob.call("token", {"seconds": 0}, "k3")
            await waiting
    finally:
        await shop.close()


@pytest.mark.parametrize(
    ("about", "complaint"),
    [
        ({"line": "true", "tokens": TOKENS}, "need each other"),
        ({"url": "http://x", "headers": {"A": "{token}"}}, "need each other"),
        ({"url": "http://x", "environment": {"A": "{token}"}, "tokens": TOKENS}, "need each other"),
        ({"url": "http://x", "headers": {"A": "{token}"}, "tokens": {"ann": "sk-canary"}}, "names people"),
        ({"url": "http://x", "headers": {"A": "{token}"}, "tokens": {"webhook:ann": "sk-canary\n"}}, "can be sent"),
        ({"url": "http://x", "headers": {"A": "{token}"}, "tokens": {"webhook:ann": ""}}, "can be sent"),
        ({"url": "http://x", "headers": {"A": "{token}"}, "tokens": TOKENS, "required": True}, "cannot be required"),
    ],
)
def test_tokens_that_cannot_work_are_refused_at_the_start(about: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint) as refused:
        McpServer(**about)
    assert "sk-canary" not in refused.value.errors(include_input=False)[0]["msg"]


def test_a_persons_token_is_a_secret_that_is_never_shown() -> None:
    mcp = {"shop": {"line": "true", "environment": {"T": "{token}"}, "tokens": TOKENS}}
    settings = Settings(llm={"mcp": mcp})  # type: ignore[arg-type]
    assert "token-of-ann" in settings.secret_values() and "token-of-ann" not in repr(settings)
