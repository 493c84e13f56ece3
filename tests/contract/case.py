"""What a platform says of itself so that the contract suites can run it.

Each platform of the list has a file `tests/contract/<platform>.py` with these names:

RECEIVING  the ways in, as classes: a `Webhook`, a `Held` connection, both, or none
SENDING    the way out, as a class: an `Outgoing`; or NotHere, where replies are read from the outbox and nothing is sent
heard      a function from a payload of tests/payloads/<platform>/ to what it is to us; or PAYLOADS_OF, the platform whose
           payloads are the same

A fake of the platform stands behind a case. It needs a good day only: the suites bring the trouble themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Self

from shared.messages import Media, Source
from shared.value import value

SEND_SECONDS = 30.0  # how long a send may take, unless a test wants it to be over soon


@value
class NotHere:
    """A promise that means nothing on a platform, and why. The suites compare it with the platform's facts, or show what
    holds instead."""

    reason: str


@value
class Post:
    """An HTTP request as the platform makes it."""

    path: str
    body: bytes
    headers: Sequence[tuple[str, str]]
    method: str = "POST"


@value
class Handshake:
    """A request that a platform makes to see whether we are there, and what it wants to hear."""

    post: Post
    answer: bytes
    forged: Post  # the same from somebody who does not know the secret


class Incoming(ABC):
    """One way in. Payloads are JSON objects as the platform sends them, complete enough to pass for real ones."""

    platform: ClassVar[str]
    way: ClassVar[str]

    own: Any | NotHere  # a message of the bot's own
    others: Mapping[str, Any] | NotHere  # events that are no message to answer, each with a name
    shapeless: Sequence[Any]  # objects that the platform would never send: each is recorded as malformed
    transport_fields: frozenset[str] = frozenset()  # top-level fields that the fake itself needs to bring a payload

    @classmethod
    @abstractmethod
    def open(cls) -> AbstractAsyncContextManager[Self]:
        """With the fake behind it, until the block ends."""

    @abstractmethod
    def said(self, text: str, *, id: int, chat: int = 1) -> Any:
        """Somebody who may talk writes to the bot, in a direct chat. The same id is the same message brought again."""

    @abstractmethod
    def said_by_stranger(self, text: str, *, id: int) -> Any | NotHere:
        """The same from somebody who is on no list."""

    def pressed(self, data: str, *, id: int, by_stranger: bool = False) -> Any | NotHere:
        """Somebody who may talk presses a button with this data, below a message of the bot's in their direct chat. The same id
        is the same press brought again. NotHere: there are no buttons, and `Facts.buttons` says so."""
        return NotHere("there are no buttons")


class Webhook(Incoming):
    """The platform posts to us. `secrets` are two that verify its requests, such as before and after a rotation."""

    way = "webhook"

    secrets: tuple[str, str]
    proofs: Sequence[str]  # headers without any one of which a request is refused
    oldest_seconds: int | NotHere  # how old a signed request may be
    rotates: NotHere | None = None  # None: two secrets can be listed at once
    taken: Sequence[int] = (200,)  # what we answer to a message that is kept
    recorded: int = 200  # what we answer to what cannot be understood; 422: the caller is told, and nothing is kept
    handshakes: Sequence[Handshake] = ()

    @abstractmethod
    def blocks(self, *secrets: str) -> dict[str, Any]:
        """Settings by platform name, with these secrets for its webhook."""

    @abstractmethod
    def post(self, body: bytes, secret: str, *, ahead: int = 0) -> Post:
        """The platform's request with this body, signed with this secret as if it were `ahead` seconds later."""


class Held(Incoming):
    """We hold a connection to the platform."""

    way = "connection"

    unreadable: NotHere | None = None  # None: `bring_raw` works

    @abstractmethod
    def blocks(self) -> dict[str, Any]:
        """Settings by platform name, with which `keyturn listen` connects to the fake."""

    @abstractmethod
    async def bring(self, *payloads: Any) -> None:
        """Let these happen on the platform, one after another. A listener that comes later is told of them too, if the
        platform keeps them."""

    @abstractmethod
    async def bring_raw(self, body: bytes) -> None:
        """Let the platform send these bytes where a payload should be."""

    @abstractmethod
    def unconfirmed(self) -> int | NotHere:
        """How many events the platform would bring again. NotHere: it never brings anything again."""


@value
class Answer:
    """An HTTP answer of the platform."""

    status: int
    body: bytes = b""
    headers: Sequence[tuple[str, str]] = ()


@value
class Shown:
    """A message of ours as the chat shows it."""

    text: str
    id: str = ""
    thread: str | None = None
    answers: str | None = None  # the message that it points at
    media: str | None = None  # the address or id of its file
    buttons: Sequence[tuple[str, str]] = ()  # the words on each, and its data


class Outgoing(ABC):
    """The way out. `api_url` is where the fake answers; the suites put a gate in between."""

    platform: ClassVar[str]

    api_url: str
    secrets: Sequence[str]  # that must be in no error, no log line and no row
    source: Source  # somebody in a direct chat, as normalise makes them
    threaded: Source | NotHere  # the same in a thread; NotHere: there are none, and `Facts.can_thread` says so
    pointing: tuple[Source, str] | NotHere  # a group, and a message id in it that an answer points at
    media: Media | NotHere  # a file that can be sent by reference, without reading it
    gains_buttons: NotHere | None = None  # None: a message without buttons can be changed to one with them
    receipts: NotHere | None = None  # None: the platform says which message a send became
    refused: Answer  # for good, whatever is sent to this chat
    denied: Answer | NotHere  # the credentials are no good
    markup_refused: Answer | NotHere  # the text's form is not understood; NotHere: Markdown goes out as it is

    @classmethod
    @abstractmethod
    def open(cls) -> AbstractAsyncContextManager[Self]:
        """With the fake behind it, until the block ends."""

    @abstractmethod
    def blocks(self, api_url: str, seconds: float = SEND_SECONDS) -> dict[str, Any]:
        """Settings by platform name, with which the sender talks to `api_url` and gives a send up after `seconds`."""

    @abstractmethod
    def is_send(self, method: str, path: str) -> bool:
        """Whether a request sends or changes a message: not a question before it, not a typing sign."""

    @abstractmethod
    def busy(self, seconds: int) -> Answer:
        """Please wait so long."""

    @abstractmethod
    def shown(self) -> list[Shown]:
        """What the chats show now, in the order in which it was sent."""

    def vanish(self, shown: Shown) -> None:
        """A message of ours is deleted by somebody. Only asked where the platform can edit."""
        raise AssertionError(f"{self.platform} can edit, so its case must say how a message vanishes")
