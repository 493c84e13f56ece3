"""Our client for the chat-completions format and the openai SDK read the same streams alike."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from openai import AsyncOpenAI
from pydantic import SecretStr

from shared.messages import Entry
from tests.support.openai import KEY, MODEL, open_provider
from workers.agents.model.contract import Piece, Prompt, Response
from workers.agents.openai_format.client import ChatCompletions, ModelServer
from workers.agents.openai_format.deltas import Assembled
from workers.agents.openai_format.events import EventData
from workers.agents.openai_format.form import ServerForm

USAGE = {
    "prompt_tokens": 21,
    "completion_tokens": 9,
    "total_tokens": 30,
    "prompt_tokens_details": {"cached_tokens": 16},
}


def chunk(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": choices, **more}


def stream(*chunks: dict[str, Any], end: bytes = b"\n\n", comment: bytes = b"", done: bool = True) -> bytes:
    events = b"".join(comment + b"data: " + orjson.dumps(one) + end for one in chunks)
    return events + (b"data: [DONE]" + end if done else b"")


def call_piece(index: int, arguments: str = "", **begun: str) -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": begun["name"]} if begun else {})}
    head = {"id": begun["id"], "type": "function"} if begun else {}
    return {"tool_calls": [{"index": index, **head, "function": function}]}


TEXT = (chunk({"role": "assistant", "content": ""}), chunk({"content": "Grüße, "}), chunk({"content": "Welt 🌍"}))
CALLS = (
    chunk(call_piece(0, id="call_a", name="look")),
    chunk(call_piece(0, '{"at":')),
    chunk(call_piece(1, id="call_b", name="read")),
    chunk(call_piece(0, '"it"}')),
    chunk(call_piece(1, '{"n":1}')),
)
COUNTED = chunk(None, usage=USAGE)
STREAMS = {
    "text": stream(*TEXT, chunk({}, "stop"), COUNTED),
    "lines that end with carriage returns, and comments": stream(
        *TEXT, chunk({}, "stop"), COUNTED, end=b"\r\n\r\n", comment=b": keep-alive\r\n\r\n"
    ),
    "a first chunk without choices": stream(chunk(None, prompt_filter_results=[]), *TEXT, chunk({}, "stop"), COUNTED),
    "usage beside the end": stream(*TEXT, chunk({}, "stop", usage=USAGE)),
    "no usage": stream(*TEXT, chunk({}, "stop")),
    "calls whose pieces alternate": stream(*CALLS, chunk({}, "tool_calls"), COUNTED),
    "text and then calls": stream(*TEXT, *CALLS, chunk({}, "tool_calls"), COUNTED),
    "the length limit": stream(*TEXT, chunk({}, "length"), COUNTED),
    "thoughts in a field": stream(chunk({"reasoning_content": "hm"}), *TEXT, chunk({}, "stop"), COUNTED),
    "no end marker": stream(*TEXT, chunk({}, "stop"), COUNTED, done=False),
}
Read = tuple[str, list[tuple[str, str, str]], bool, Any]  # text, calls, whether cut, input and output and cached tokens


async def by_the_sdk(url: str) -> Read:
    client = AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0)
    text, finish, tokens, calls = "", None, None, dict[int, list[str]]()
    asked: Any = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with client, await client.chat.completions.create(**asked) as chunks:
        async for one in chunks:
            if one.usage:
                details = one.usage.prompt_tokens_details
                tokens = (one.usage.prompt_tokens, one.usage.completion_tokens, details.cached_tokens)
            for choice in one.choices:
                text += choice.delta.content or ""
                finish = choice.finish_reason or finish
                for piece in choice.delta.tool_calls or ():
                    call = calls.setdefault(piece.index, ["", "", ""])
                    for n, part in enumerate((piece.id, piece.function.name, piece.function.arguments)):
                        call[n] += part or ""
    made = [(call[0], call[1], call[2]) for _, call in sorted(calls.items())]
    return text, made, finish == "length", tokens


async def by_ours(url: str) -> Read:
    model = ChatCompletions(MODEL, ModelServer(url, SecretStr(KEY), ServerForm("openai-compatible"), 30))
    pieces = [piece async for piece in model.stream(Prompt([Entry("user", "hi")]))]
    response = pieces.pop()
    assert isinstance(response, Response)
    text = "".join(piece.text for piece in pieces if isinstance(piece, Piece))
    assert text == response.text
    used = response.usage
    tokens = None if used.get("estimated") else (used["input"], used["output"], used["cache_read"])
    return text, [(call.id, call.name, call.arguments) for call in response.calls], response.is_cut, tokens


@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_is_read_as_the_sdk_reads_it(name: str) -> None:
    async with open_provider(answer=lambda _: STREAMS[name]) as provider:
        assert await by_ours(provider.url) == await by_the_sdk(provider.url)


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_is_cut_anywhere_between_two_reads_says_the_same(name: str) -> None:
    def read(size: int) -> tuple[Any, ...]:
        data, answer = EventData(), Assembled()
        sent = STREAMS[name]
        for at in range(0, len(sent), size):
            answer.take([orjson.loads(text) for text in data.fed(sent[at : at + size]) if text != b"[DONE]"])
        answer.end()
        return answer.text, answer.reasoning, answer.calls, answer.finish, answer.tokens

    assert read(1) == read(7) == read(len(STREAMS[name]))
    assert read(1)[3] is not None


@pytest.mark.parametrize(
    ("pieces", "text", "thought"),
    [
        (["<th", "ink>hm", "m</thi", "nk>\n\n42"], "42", "hmm"),
        (["\n<think>a</think>b</think>"], "b</think>", "a"),
        (["a <think>b</think>"], "a <think>b</think>", ""),
        (["<think>never ends"], "", "never ends"),
        (["<thi"], "<thi", ""),
        (["<", "b>bold</b>"], "<b>bold</b>", ""),
    ],
)
def test_thoughts_between_tags_at_the_beginning_are_no_text(pieces: list[str], text: str, thought: str) -> None:
    answer = Assembled()
    for piece in pieces:
        answer.take([chunk({"content": piece})])
    answer.end()
    assert (answer.text, answer.reasoning) == (text, thought)


async def test_what_arrived_in_one_read_is_one_piece() -> None:
    answer = Assembled()
    assert answer.take([*TEXT, chunk({}, "stop")]) == Piece("Grüße, Welt 🌍", "", is_last=True)
