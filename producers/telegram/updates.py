"""What one bot is told, however it comes: by webhook or by polling."""

from __future__ import annotations

from typing import Any

from producers.heard import Event, Heard
from producers.settling import Understanding
from producers.telegram.normalise import TelegramMe, chat_of, normalise
from shared.clock import now_ms
from shared.codec import message_id
from shared.errors import Malformed
from shared.mail import decode_inbound
from shared.messages import Inbound
from shared.platforms.telegram import NAME
from shared.platforms.telegram_api import BotApi
from shared.store.journal import Journal

HEARD = "answerCallbackQuery"  # the method that ends a pressed button's waiting
_STARTED_MS = now_ms()
_CLOCKS_MS = 60_000  # that Telegram's clock and ours may differ


class Updates(Understanding):
    """The updates of one bot. Nothing is understood before the bot's own name is known: nobody could say who is addressed."""

    name = NAME

    def __init__(self, account: str, journal: Journal) -> None:
        self._account = account
        self._journal = journal
        self._me: TelegramMe | None = None

    @property
    def is_introduced(self) -> bool:
        return self._me is not None

    async def introduce(self, api: BotApi) -> None:
        """Ask Telegram who we are. The answer stays the same, so one asks once."""
        if self._me is None:
            id, username = await api.me()
            self._me = TelegramMe(id, username, self._account)

    def event(self, update: dict[str, Any]) -> Event:
        return Event(str(update.get("update_id")), update, chat_of(update))

    def normalise(self, event: Event, received_at: int) -> Heard:
        assert self._me is not None
        return normalise(event.fields, self._me, received_at)

    async def known_before(self, inbound: Inbound, event: Event) -> bool:
        """Whether a version of Keyturn that knew messages by their update's id has accepted this one: Telegram brings the
        last batch again after an upgrade. Only what was said before this process began is looked up."""
        if inbound.sent_at is None or inbound.sent_at > _STARTED_MS + _CLOCKS_MS:
            return False
        row = await self._journal.find(message_id(NAME, inbound.source.account, event.ref))
        if row is None:
            return False
        try:
            known = decode_inbound(row["payload"])
        except Malformed:  # its words were deleted
            return False
        return (known.source.chat, known.message) == (inbound.source.chat, inbound.message)
