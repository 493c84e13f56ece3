"""The senders: signed webhooks posted until they are accepted, each key's one after another, many keys at once.

Which message goes to which key, when, and what it asks of the agent, follows from the seed alone.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import orjson
from pydantic import SecretStr

from shared import signing
from shared.codec import message_id
from tests.support.cluster import SECRET
from tests.support.hostile_commands import hostile_command

FLOOD = "flood"  # what the chats are called whose messages are commands
POST_SECONDS = 2.0  # a paused receiver does not answer: ask another
_KEY = signing.decode_secret(SecretStr(SECRET))


@dataclass(frozen=True, slots=True)
class Message:
    """The n-th message of a chat, due so many seconds after the start."""

    chat: str
    n: int
    text: str
    due: float
    poison: str = ""  # the word that makes it fail, if it is meant to fail for good

    @property
    def event_id(self) -> str:
        return f"{self.chat}-{self.n}"

    @property
    def id(self) -> str:
        return message_id("webhook", "", self.event_id)

    @property
    def session_key(self) -> str:
        return f"agent:main:webhook:dm:{self.chat}"

    @property
    def is_flood(self) -> bool:
        """Whether it is one of the commands that are thrown at chats of their own."""
        return self.chat.startswith(FLOOD)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be sent."""

    seed: int
    messages: int
    keys: int
    seconds: float = 0.0  # the sending is spread over this time
    zipf: float = 0.0  # 0: all keys alike; 1: the hottest has a share of about 1/ln(keys)
    poison: Sequence[str] = ()  # words that make a message fail, taken in turn
    poison_share: float = 0.0
    mishaps: Sequence[str] = ()  # words that hurt a first attempt or two, and no more
    mishap_share: float = 0.0
    silent_share: float = 0.03  # of messages whose answer is not sent to the chat
    tools_share: float = 0.1  # of messages whose turn calls tools
    tools: int = 3  # so many of them
    sleep_ms: int = 20
    names: str = "k"  # what chats are called, before their number

    def make(self) -> dict[str, list[Message]]:
        """Each chat's messages in order."""
        rng = random.Random(self.seed)
        chats = [f"{self.names}{number}" for number in range(self.keys)]
        order = list(chats) * (self.messages // self.keys) if not self.zipf else list(chats)
        weights = [1 / (rank + 1) ** self.zipf for rank in range(self.keys)]
        order += rng.choices(chats, weights, k=self.messages - len(order))
        rng.shuffle(order)
        every = round(1 / self.poison_share) if self.poison_share else 0
        made: dict[str, list[Message]] = {chat: [] for chat in chats}
        for i, chat in enumerate(order):
            n = len(made[chat]) + 1
            poison = self.poison[i // every % len(self.poison)] if every and i % every == every - 1 else ""
            words = [f"n={n}", f"sleep={rng.randint(0, self.sleep_ms)}"]
            if rng.random() < self.silent_share:
                words.append("silent")
            elif rng.random() < 0.07:
                words.append(rng.choice(("parts=2", "parts=3")))
            if not poison and self.mishaps and rng.random() < self.mishap_share:
                words.append(rng.choice(tuple(self.mishaps)))
            if rng.random() < self.tools_share:
                words.append(f"tools={self.tools}")
            due = i * self.seconds / self.messages
            made[chat].append(Message(chat, n, " ".join([*words, poison]).strip(), due, poison))
        return made


def flood(seed: int, messages: int, keys: int, seconds: float) -> dict[str, list[Message]]:
    """Commands with hostile arguments, and something to answer between them, to chats of their own."""
    rng = random.Random(seed)
    made: dict[str, list[Message]] = {f"{FLOOD}{number}": [] for number in range(keys)}
    for i in range(messages):
        chat = f"{FLOOD}{rng.randrange(keys)}"
        n = len(made[chat]) + 1
        text = hostile_command(rng) if rng.random() < 0.7 else f"n={n} sleep={rng.randint(0, 20)}"
        made[chat].append(Message(chat, n, text, i * seconds / messages))
    return made


@dataclass(slots=True)
class Sent:
    """What became of the sending."""

    accepted: list[Message] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)  # by status, or by error where the outcome is unknown
    duplicates: int = 0
    seconds: float = 0.0
    finished: bool = False


class Senders:
    """Posts a plan. Repeats a share of it with the same id, as platforms do, perhaps to another receiver at once."""

    def __init__(
        self, ports: Sequence[int], *, seed: int, duplicate_share: float = 0.0, connections: int = 128
    ) -> None:
        self.sent = Sent()
        self._ports = ports
        self._rng = random.Random(seed)
        self._duplicate_share = duplicate_share
        self._idle: dict[int, deque[_Connection]] = {port: deque() for port in ports}
        self._slots = asyncio.Semaphore(connections)
        self._repeats: set[asyncio.Task[None]] = set()

    async def post(self, plan: dict[str, list[Message]]) -> Sent:
        """Returns when every message has been accepted. May be called again, with other messages."""
        self._start = time.monotonic()
        await asyncio.gather(*(self._post_chat(messages) for messages in plan.values() if messages))
        await asyncio.gather(*self._repeats)
        self.sent.seconds += time.monotonic() - self._start
        self.sent.finished = True
        self._close()
        return self.sent

    async def _post_chat(self, messages: Sequence[Message]) -> None:
        for message in messages:
            wait = self._start + message.due - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            if self._rng.random() < self._duplicate_share:
                self.sent.duplicates += 1
                task = asyncio.create_task(self._until_accepted(message))
                self._repeats.add(task)
                task.add_done_callback(self._repeats.discard)
            await self._until_accepted(message)
            self.sent.accepted.append(message)

    async def _until_accepted(self, message: Message) -> None:
        pause = 0.02
        while True:
            async with self._slots:
                outcome = await self._once(message)
            self.sent.answers[outcome] += 1
            if outcome == "200":
                return
            if outcome.isdigit() and outcome not in ("429", "500", "503"):
                raise AssertionError(f"{message.event_id} was answered {outcome}")
            await asyncio.sleep(pause * self._rng.uniform(0.5, 1.5))
            pause = min(pause * 2, 1.0)

    async def _once(self, message: Message) -> str:
        port = self._rng.choice(self._ports)
        connection: _Connection | None = None
        try:
            async with asyncio.timeout(POST_SECONDS):
                connection = self._idle[port].pop() if self._idle[port] else await _Connection.open(port)
                status, usable = await connection.post(message)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            if connection is not None:
                connection.close()
            return "refused" if isinstance(error, ConnectionRefusedError) else "unknown"
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        if usable:
            self._idle[port].append(connection)
        else:
            connection.close()
        return status

    def _close(self) -> None:
        for connections in self._idle.values():
            while connections:
                connections.pop().close()


class _Connection:
    """One kept-alive HTTP connection. By hand, because a general client costs more than the receiver it talks to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> _Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def post(self, message: Message) -> tuple[str, bool]:
        """The status, and whether the connection may be used again."""
        chat = {"id": message.chat}
        body = orjson.dumps({"chat": chat, "user": {"id": f"u-{message.chat}"}, "text": message.text})
        now = int(time.time())
        head = (
            "POST /webhooks/webhook HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nwebhook-id: {message.event_id}\r\nwebhook-timestamp: {now}\r\n"
            f"webhook-signature: {signing.sign(_KEY, message.event_id, now, body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        lines = answer.decode().lower().split("\r\n")
        length = next(int(line.partition(":")[2]) for line in lines if line.startswith("content-length:"))
        await self._reader.readexactly(length)
        return lines[0].split()[1], "connection: close" not in lines

    def close(self) -> None:
        self._writer.close()
