"""One class per decision a caller can take. Nothing is decided by reading a message text."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shared.agent.turn import Result


class PipelineError(Exception):
    """Something the pipeline expects to happen and knows how to answer."""


class Malformed(PipelineError):
    """Cannot be understood: set aside with this reason, never retried."""


class TooNew(Malformed):
    """Written by a newer version than this one: leave it to a process of that version, and never set it aside.

    Whoever only shows or counts records may treat it as Malformed: this process cannot read it. `written_at` is when it was
    written, where the reader knows that (wall clock, ms).
    """

    def __init__(self, what: str, *, written_at: int = 0) -> None:
        super().__init__(what)
        self.written_at = written_at


class Denied(PipelineError):
    """Not authentic or not permitted: refused, without saying why."""


class BotRefused(Denied):
    """A platform takes nothing from this bot, whichever chat it is for: its token is no good, or its account is locked.

    One try tells for all chats whether that is over. Plain Denied says so of one request only: a permission is missing.
    """


class OutOfScope(PipelineError):
    """The key is good, and it may not be used for this."""


class Transient(PipelineError):
    """Redis, a model or a platform did not answer: retry with backoff."""


class Unavailable(Transient):
    """A store of ours is down: refuse new work, spend no attempt."""


class Locked(Unavailable):
    """Another transaction keeps a row for longer than this write was to wait."""


class Outage(Transient):
    """The other side answers nobody for now, whatever is asked: wait, and spend no attempt.

    `retry_after` is how long it asked us to wait, if it did; `provider` and `status` say who answered what.
    """

    def __init__(
        self, what: str, *, retry_after: timedelta = timedelta(0), provider: str = "", status: int | None = None
    ) -> None:
        super().__init__(what)
        self.retry_after = retry_after
        self.provider = provider
        self.status = status


class RateLimited(Outage):
    """The other side asked us to wait. `is_guess`: it did not say for how long. A platform asks this of the one chat, or with
    `whole_bot` of all chats of the bot."""

    def __init__(
        self,
        retry_after: timedelta,
        *,
        provider: str = "",
        status: int | None = None,
        is_guess: bool = False,
        whole_bot: bool = False,
    ) -> None:
        what = f"wait {retry_after.total_seconds():.1f} s"
        super().__init__(what, retry_after=retry_after, provider=provider, status=status)
        self.is_guess = is_guess
        self.whole_bot = whole_bot


class HeldBack(RateLimited):
    """A limit of our own asked us to wait: the other side is well, and the message may wait for as long as it takes."""


class Unreachable(Transient):
    """No connection could be made: the request never left."""


class Ambiguous(Transient):
    """The request went out and no answer came: it may have been carried out."""


class Silent(Ambiguous):
    """The request went out, and nothing came for as long as the caller would wait."""


class Conflict(PipelineError):
    """The platform gives its messages to somebody else who shows the same credentials: wait until they stop."""


class MailboxFull(PipelineError):
    """This key has as much waiting mail as it may hold: ask the sender to come back later."""


class TooMany(PipelineError):
    """A quota is used up: ask the sender to come back when `retry_after` has passed."""

    def __init__(self, quota: str, retry_after: timedelta) -> None:
        super().__init__(quota)
        self.retry_after = retry_after


class Permanent(PipelineError):
    """An agent says that trying again cannot help: the message becomes a dead letter at once.

    `notice` is what the chat is told instead of the usual words, where it helps to know.
    """

    def __init__(self, reason: str = "", notice: str | None = None) -> None:
        super().__init__(reason)
        self.notice = notice


class AgentFault(PipelineError):
    """An agent broke its contract; the text says how. Tried again like any other error of an agent."""


class Stopped(PipelineError):
    """The user asked for this turn to end: keep what was said, say nothing more.

    `kept` is what the agent had finished: its rows, legal as they stand, and what they cost.
    """

    def __init__(self, kept: Result | None = None) -> None:
        super().__init__()
        self.kept = kept


class Crashed(PipelineError):
    """The process that ran this turn, and nothing else, died."""


class Undeliverable(PipelineError):
    """Refused for good: bury the reply, tell the operator.

    With `closes_chat` nothing else would be taken there either: the bot was blocked or removed, or the chat is gone.
    """

    def __init__(self, reason: str = "", *, closes_chat: bool = False) -> None:
        super().__init__(reason)
        self.closes_chat = closes_chat


class Superseded(PipelineError):
    """Another writer moved the session on: drop the work, write nothing."""


class AlreadyDone(PipelineError):
    """This very message was committed before: acknowledge it, write nothing."""


class ConfigurationError(PipelineError):
    """The settings cannot work; the text says what to change."""


class CannotDo(PipelineError):
    """What an operator asked for is not there, or cannot be done; the text says which."""


class NotFound(CannotDo):
    """What an operator asked for is not there."""
