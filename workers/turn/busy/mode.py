"""Which busy mode a conversation has: the session's, else the chat's, else the platform's, else BUSY_MODE."""

from __future__ import annotations

from collections.abc import Mapping

from shared.busy import BUSY_MODE, BusyMode
from shared.messages import Inbound, Kind, Session
from shared.platforms import PLATFORMS
from shared.routing import chat_name
from shared.settings import Settings
from shared.value import value


@value
class BusyModes:
    """The modes as the settings have them."""

    default: BusyMode
    by_platform: Mapping[str, BusyMode]
    by_chat: Mapping[str, BusyMode]

    @classmethod
    def of(cls, settings: Settings) -> BusyModes:
        blocks = {name: block for name in PLATFORMS if (block := settings.platform(name)) is not None}
        by_platform = {name: block.busy_mode for name, block in blocks.items() if block.busy_mode is not None}
        return cls(settings.busy_mode, by_platform, settings.busy_chats)

    def in_session(self, session: Session, inbound: Inbound, told: BusyMode | None = None) -> BusyMode:
        """The mode while `inbound` is answered; `told` is what /queue has set since the session was loaded."""
        if inbound.kind is not Kind.MESSAGE or inbound.is_stateless:  # nobody waits for a turn that nobody asked for
            return BusyMode.QUEUE
        said = told or (BusyMode.named(session.facts[BUSY_MODE]) if BUSY_MODE in session.facts else None)
        return said or self.in_chat(inbound)

    def in_chat(self, inbound: Inbound) -> BusyMode:
        """The mode where the session has none of its own."""
        if self.by_chat and (mode := self.by_chat.get(chat_name(inbound.source))) is not None:
            return mode
        return self.by_platform.get(inbound.source.platform, self.default)
