"""One agent in every form that an author may write it in. Tests name them by AGENT=tests.support.answering:…

The message says what to do: `say <text>`, `silent`, `refuse`, `fail`, `hang`, `spend`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

from keyturn import Delta, Done, Entry, Event, Permanent, Reply, Result, Row, Spent, Turn

USED = {"model": "m", "requests": 1, "input": 7, "output": 2}
FAILED = {"model": "m", "requests": 1, "input": 5, "output": 0}
NOTICE = "That is not for me."
cleaned_up: list[str] = []  # what each of them says at its end
hanging = threading.Event()  # set when one of them hangs; a test clears it


def said(text: str) -> str:
    """The answer, or what the message wants instead."""
    word, _, rest = text.partition(" ")
    if word == "refuse":
        raise Permanent("no", NOTICE)
    if word == "fail":
        raise RuntimeError("why")
    return rest if word == "say" else ""


async def wait_if_told(text: str, me: str) -> None:
    try:
        if text == "hang":
            hanging.set()
            await asyncio.Event().wait()
    finally:
        cleaned_up.append(me)


def text_function(text: str) -> str:
    if text == "hang":
        hanging.set()
        threading.Event().wait(600)
    return said(text)


async def async_text_function(text: str) -> str:
    await wait_if_told(text, "async_text_function")
    return said(text)


async def coroutine(turn: Turn) -> Result:
    text = turn.mail[0].text
    await wait_if_told(text, "coroutine")
    return result_of(text)


def turn_function(turn: Turn) -> Result:
    text = turn.mail[0].text
    text_function(text)
    return result_of(text)


class WithCoroutine:
    async def run(self, turn: Turn) -> Result:
        text = turn.mail[0].text
        await wait_if_told(text, "WithCoroutine")
        return result_of(text)


async def generator(turn: Turn) -> AsyncIterator[Event]:
    text = turn.mail[0].text
    await wait_if_told(text, "generator")
    if text == "spend":
        yield Spent(FAILED)
        yield Row(Entry("assistant", "paid", data={"usage": USED}))
        yield Done((Reply("paid"),))
    elif answer := said(text):
        for piece in answer:
            yield Delta(piece)
        yield Row(Entry("assistant", answer))
        yield Done((Reply(answer),))
    else:
        yield Done()


class WithGenerator:
    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        try:
            async for event in generator(turn):
                yield event
        finally:
            cleaned_up.append("WithGenerator")


class WithIterator:
    """Its `run` is no generator function, and gives an async iterator all the same."""

    def run(self, turn: Turn) -> AsyncIterator[Event]:
        return generator(turn)


def result_of(text: str) -> Result:
    if text == "spend":
        return Result((Entry("assistant", "paid", data={"usage": USED}),), (Reply("paid"),), (FAILED,))
    answer = said(text)
    return Result((Entry("assistant", answer),), (Reply(answer),)) if answer else Result()
