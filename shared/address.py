"""Where messages go, apart from who says them."""

from __future__ import annotations

from shared.value import value


@value
class Address:
    """A chat of a platform, perhaps a thread in it, and the account of ours that speaks there. Ids are the platform's own."""

    platform: str
    account: str  # which of our bots on that platform; empty while there is one
    chat: str
    thread: str | None = None

    @property
    def place(self) -> tuple[str, str, str]:
        """The chat, in whatever thread: messages to one place leave in order."""
        return self.platform, self.account, self.chat
