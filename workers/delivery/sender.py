"""What a platform writes so that replies reach it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Protocol, runtime_checkable

from shared.address import Address
from shared.errors import BotRefused, PipelineError
from shared.messages import Inbound, Media, Part, Receipt, Source
from shared.platforms.facts import Idempotency
from workers.media.incoming import FetchLimits, IncomingFile


@contextmanager
def no_matter() -> Iterator[None]:
    """Whatever goes wrong in the block is no matter, but that the platform takes nothing from this bot: BotRefused."""
    try:
        yield
    except BotRefused:
        raise
    except PipelineError:
        pass


class Sender(Protocol):
    """Sends parts. Every call is one attempt: retries, waits and records are the delivery's."""

    idempotency: Idempotency

    async def send(self, part: Part) -> Receipt:
        """Send once and return the receipt. Raises what tells the delivery what to do:

        RateLimited: wait as long as asked. Transient: it did not arrive, try again. Ambiguous: it may have arrived.
        BotRefused: the platform takes nothing from this bot, so all its replies wait. Denied: a permission is missing, so the
        replies of the chat wait. Undeliverable: refused for good.
        """


@runtime_checkable
class Edits(Protocol):
    """A Sender that can change what it sent."""

    async def edit(self, part: Part) -> Receipt:
        """Change the message `part.edits` to this part, once, and return its receipt. Raises as `send` does.

        The same change again is no error. A message that is gone is sent anew. Of one that is still there and cannot be changed
        any more, what it does not show is sent (`missing`). No text is lost.
        """


@runtime_checkable
class Rewrites(Protocol):
    """A Sender that can change a message again and again, while an answer is written."""

    async def rewrite(self, part: Part) -> None:
        """Change the message `part.edits` to this part, once. Raises as `send` does; Undeliverable where it cannot be changed
        any more: then nothing is sent in its place."""


@runtime_checkable
class ShowsDrafts(Protocol):
    """A Sender whose platform shows in a private chat what is being written, without a message."""

    draft_seconds: float  # how often it may be changed

    async def draft(self, said: Inbound, text: str) -> None:
        """Show this beginning of the answer to a message, for some seconds. Raises as `send` does."""


@runtime_checkable
class ShowsTyping(Protocol):
    """A Sender that can show that an answer is coming."""

    async def typing(self, to: Address) -> None:
        """Show it for some seconds. Never takes long. Raises BotRefused where the platform takes nothing from this bot, and fails
        for no other reason."""


@runtime_checkable
class MarksRead(Protocol):
    """A Sender that shows this only together with which message was read."""

    async def read(self, to: Address, message: str) -> None:
        """Show that the message was read and an answer is coming, for some seconds. Raises as `typing` does."""


@runtime_checkable
class GivesFiles(Protocol):
    """A Sender that can also fetch the files of the messages that came from its platform."""

    def file(self, media: Media, source: Source, limits: FetchLimits) -> AbstractAsyncContextManager[IncomingFile]:
        """The file, until the block ends.

        Raises CannotFetch or FileTooLarge where it cannot be had, Denied where the platform refuses our credentials, and
        Transient, as other calls do. Our credentials go to the platform and nowhere else.
        """
