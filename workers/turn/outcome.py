"""How one look at a key's first mail comes out. The stages return these values, and take.py acts on them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from shared.store.change import Commit, Committed
from shared.value import value

if TYPE_CHECKING:
    from workers.turn.attempt import Attempt


@value
class Conclusion:
    """The mail is to end by this commit. Nothing is written yet: a crash here leaves the mail where it was."""

    attempt: Attempt
    commit: Commit
    counted_as: str  # the outcome that `keyturn_turns_total` counts
    otherwise: Callable[[], Conclusion] | None = None  # gives what to commit instead, if the database cannot keep this
    afterwards: Callable[[], None] | None = None  # called when the commit is kept; a crash may leave it out


@value
class Kept:
    """The commit is kept. The mail is to leave the mailbox, and delivery is to hear of the replies."""

    seqs: tuple[int, ...]
    committed: Committed


@value
class AlreadyEnded:
    """This mail had ended before, or was no message. It is only to leave the mailbox."""

    seqs: tuple[int, ...]


@value
class Reopen:
    """No mail has ended. Load the session again, because it is another now or has moved on, and open the mail once more."""


@value
class Retry:
    """No mail has ended. Give the key back with its mail, to be woken after this time."""

    after: timedelta
    spent: bool  # the attempt counts against the message
    provider_away: bool = False  # it does not count, because the model's provider answers nobody


@value
class Lost:
    """Another worker has the key by now."""


REOPEN, LOST = Reopen(), Lost()
Outcome = Kept | AlreadyEnded | Reopen | Retry | Lost
