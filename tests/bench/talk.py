"""Conversations as chats have them, kept as the pipeline keeps them: accepted, answered, sent and indexed for search.

A message has about 80 characters (14 words) and its answer about 300 (50 words), both of very different lengths; every tenth
pair is Chinese, a third as long. Conversations are of different lengths too: with 20 messages in the middle, four of five in
a chat of two, the others in groups. Ids, names and times are as long as Telegram's.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate

from shared.clock import now_ms
from shared.codec import message_id
from shared.context import marks
from shared.ids import fresh_id
from shared.mail import encode_mail
from shared.messages import Entry, Inbound, Mail, Reply, Source
from shared.session_key import SessionKey
from shared.store import Store
from shared.store.change import Commit, Proof
from tests.bench.library import Language

SAID, ANSWERED = 80, 300  # characters, on average
PER_CONVERSATION = 20
SEED = 3
CHINESE_EVERY, CHINESE_SHORTER = 10, 3
AT_ONCE = 64  # conversations that go on at the same time
MAILBOX = 1000


@dataclass(frozen=True, slots=True)
class Exchange:
    """One message and its answer."""

    source: Source
    number: int
    text: str
    answer: str

    def elsewhere(self, number: int) -> Exchange:
        """The same words in a chat of its own."""
        return replace(self, source=replace(self.source, chat=f"9{number:09}"), number=number)

    def inbound(self) -> Inbound:
        now, event_id = now_ms(), f"7000000001:{self.source.chat}:{self.number}"
        id = message_id("telegram", "", event_id)
        return Inbound(
            id, event_id, self.source, self.text, sent_at=now - 400, received_at=now, message=str(self.number)
        )


class Talk:
    """The same conversations each time."""

    def __init__(self) -> None:
        self._language = Language.made_up()
        self._words = list(accumulate(1 / n for n in range(1, len(self._language.words) + 1)))
        self._characters = list(accumulate(1 / n for n in range(1, len(self._language.characters) + 1)))

    def conversations(self, messages: int) -> Iterator[list[Exchange]]:
        """As many as it takes for so many messages."""
        chance, chat = random.Random(SEED), 0
        while messages > 0:
            chat += 1
            count = min(1 + int(chance.expovariate(1 / PER_CONVERSATION)), messages)
            messages -= count
            yield [self._exchange(chance, chat, number) for number in range(1, count + 1)]

    def _exchange(self, chance: random.Random, chat: int, number: int) -> Exchange:
        in_chinese = number % CHINESE_EVERY == 0
        text, answer = (self._text(chance, length, in_chinese) for length in (SAID, ANSWERED))
        return Exchange(_source(chat), number, text, answer)

    def _text(self, chance: random.Random, length: int, in_chinese: bool) -> str:
        wanted = max(int(length * chance.uniform(0.25, 1.75)), 2)
        if in_chinese:
            characters = wanted // CHINESE_SHORTER + 1
            return "".join(chance.choices(self._language.characters, cum_weights=self._characters, k=characters))
        words = chance.choices(self._language.words, cum_weights=self._words, k=wanted // 3 + 1)
        return " ".join(words)[:wanted].strip()


def _source(chat: int) -> Source:
    if chat % 5:
        id = str(5_200_000_000 + chat * 7919)
        return Source("telegram", id, user=id, chat_name="Ann Martin", user_name="Ann Martin")
    user = str(5_200_000_000 + chat * 7907)
    return Source(
        "telegram", f"-100{1_500_000_000 + chat}", "group", user=user, chat_name="Weekend trips", user_name="Bo Li"
    )


async def hold(store: Store, talk: Talk, messages: int) -> None:
    """Let the conversations take place, each message answered before the next, and index them for search."""
    room = asyncio.Semaphore(AT_ONCE)

    async def converse(exchanges: list[Exchange]) -> None:
        async with room:
            for exchange in exchanges:
                await take_turn(store, exchange)

    async with asyncio.TaskGroup() as going_on:
        for exchanges in talk.conversations(messages):
            going_on.create_task(converse(exchanges))
    while await store.search.index():
        pass


async def take_turn(store: Store, exchange: Exchange) -> Inbound:
    """Accept the message, commit its turn, and send the answer."""
    inbound = exchange.inbound()
    key = str(SessionKey.for_source(inbound.source))
    accepted = await store.journal.accept(inbound, encode_mail(inbound), key, MAILBOX)
    session, _ = await store.transcript.load(key, inbound.id)
    proof = Proof(f"turn_{fresh_id()}", "host-1.4711.a1b2c3", 1, now_ms(), now_ms())
    entries = (marks.user_row(inbound), Entry("assistant", exchange.answer))
    mail = Mail(accepted.seq, inbound)
    committed = await store.commit(Commit(session, key, proof, (mail,), entries, (Reply(exchange.answer),)))
    part = await store.outbox.take(committed.destination, fresh_id())
    assert part is not None
    await store.outbox.sent(part, str(exchange.number + 1))
    return inbound
