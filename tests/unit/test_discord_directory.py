"""What a Discord listener remembers of the places where its bot is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from producers.discord import directory
from producers.discord.directory import DiscordDirectory
from producers.discord.lookup import Lookups
from shared.errors import RateLimited
from shared.platforms.discord_api import DiscordApi

GUILD = "1200"


class Api(DiscordApi):
    """Knows every channel, and counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.member: dict[str, Any] | None = {"roles": ["77"]}  # None: Discord does not say which roles we have

    async def ask(self, path: str) -> dict[str, Any]:
        self.asked.append(path)
        if "/members/" in path:
            if self.member is None:
                raise RateLimited(timedelta(hours=1))
            return self.member
        return a_thread(path.rpartition("/")[2])


def a_thread(id: str) -> dict[str, Any]:
    return {"id": id, "type": 11, "name": f"thread {id}", "parent_id": "5"}


def said_in(id: str) -> dict[str, Any]:
    return {"channel_id": id, "guild_id": GUILD, "channel_type": 11, "content": "<@&77>", "mention_roles": []}


@pytest.fixture
def api() -> Api:
    return Api()


async def test_the_channels_and_roles_used_last_are_remembered_and_no_more(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "REMEMBERED", 10, raising=False)
    known = DiscordDirectory(Lookups(api), "99")
    for id in map(str, range(100, 200)):
        known.learn("THREAD_CREATE", {**a_thread(id), "guild_id": GUILD})
        known.learn("GUILD_ROLE_CREATE", {"guild_id": GUILD, "role": {"id": id, "name": "role"}})
        if id >= "150":
            await known.about(said_in("150"))
    assert (len(known._channels), len(known._role_names), api.asked) == (10, 10, [])
    found = (await known.about(said_in("101"))).channel
    assert (found is not None and found.name, api.asked) == ("thread 101", ["/channels/101"])


async def test_our_roles_are_asked_for_where_a_message_mentions_any_and_once_they_are_known_no_more(api: Api) -> None:
    known = DiscordDirectory(Lookups(api), "99")
    known.learn("THREAD_CREATE", {**a_thread("7"), "guild_id": GUILD})
    known.learn("READY", {"user": {"id": "99"}})
    message = {**said_in("7"), "mention_roles": ["77"]}
    assert (await known.about(said_in("7"))).my_roles == frozenset() and api.asked == []
    assert [(await known.about(message)).my_roles for _ in range(2)] == [{"77"}, {"77"}]
    assert api.asked == [f"/guilds/{GUILD}/members/99"]


async def test_of_roles_that_discord_does_not_say_nothing_is_known(api: Api) -> None:
    api.member = None
    known = DiscordDirectory(Lookups(api), "99")
    known.learn("THREAD_CREATE", {**a_thread("7"), "guild_id": GUILD})
    assert (await known.about({**said_in("7"), "mention_roles": ["77"]})).my_roles == frozenset()
    assert GUILD not in known._my_roles  # it is asked again


@pytest.mark.parametrize("outage", [False, True])
async def test_a_guild_that_we_left_is_forgotten_and_one_with_an_outage_is_not(api: Api, outage: bool) -> None:
    known = DiscordDirectory(Lookups(api), "99")
    roles = [{"id": "77", "name": "helpers", "tags": {"bot_id": ""}}]
    known.learn("GUILD_CREATE", {"id": GUILD, "channels": [], "threads": [a_thread("7")], "roles": roles})
    known.learn("GUILD_DELETE", {"id": GUILD, "unavailable": True} if outage else {"id": GUILD})
    about = await known.about(said_in("7"))
    assert api.asked == ([] if outage else ["/channels/7"])
    assert (dict(about.names), set(about.my_roles)) == (({"77": "helpers"}, {"77"}) if outage else ({}, set()))
