"""Home channels: the chat of each platform that gets what answers nobody. Kept as facts by /sethome, else from the settings."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from shared.address import Address
from shared.messages import Source
from shared.settings import Settings
from shared.store import Store
from shared.store.facts import HOMES
from shared.value import value


@value
class HomeChannel:
    """The chat that somebody chose as a platform's own."""

    address: Address
    name: str | None = None


async def home_channels(settings: Settings, store: Store) -> dict[str, HomeChannel]:
    """The home channel of each connected platform that has one: what /sethome kept, else what the settings say."""
    return homes_from(settings, await store.facts.of(HOMES))


def homes_from(settings: Settings, kept: Mapping[str, str]) -> dict[str, HomeChannel]:
    """The same where what /sethome kept is known already."""
    found: dict[str, HomeChannel] = {}
    for platform in settings.connected:
        block = settings.platform(platform)
        if platform in kept:
            home = orjson.loads(kept[platform])
            address = Address(platform, home.get("account") or "", home["chat"], home.get("thread"))
            found[platform] = HomeChannel(address, home.get("name"))
        elif block is not None and block.home_channel:
            found[platform] = HomeChannel(Address(platform, "", block.home_channel))
    return found


def home_fact(source: Source) -> tuple[tuple[str, str], str]:
    """The fact that makes a chat its platform's home channel."""
    home = {"chat": source.chat, "name": source.chat_name, "thread": source.thread, "account": source.account}
    return (HOMES, source.platform), orjson.dumps(home).decode()
