"""A dispatch or an interaction of Discord becomes an Inbound, a reason to leave it, or says which field stands in the way."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import discord
import orjson
import pytest
from discord.state import ConnectionState
from hypothesis import given
from hypothesis import strategies as st

from producers.discord.interactions import without_command
from producers.discord.normalise import normalise
from shared.codec import message_id
from shared.errors import Malformed
from shared.mail import decode_inbound, encode_mail
from shared.messages import Inbound
from shared.platforms.discord import InteractionAnswer
from tests.support.discord import ME

PAYLOADS = Path(__file__).parents[1] / "payloads/discord"
NAMES = sorted(path.stem for path in PAYLOADS.glob("*.json") if "." not in path.stem)


def payload(name: str) -> dict[str, Any]:
    fields: dict[str, Any] = orjson.loads((PAYLOADS / f"{name}.json").read_bytes())
    return fields


def a_message(known: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    message = {"id": "7", "channel_id": "5", "type": 0, "author": {"id": "42", "username": "ann"}, "content": "hello"}
    me: dict[str, Any] = {
        "me": {"id": "99", "name": "Helper"},
        "roles": [],
        "channel": None,
        "parent": None,
        "names": {},
    }
    return {"t": "MESSAGE_CREATE", "d": {**message, **changes}, "known": {**me, **(known or {})}}


def a_command(**changes: Any) -> dict[str, Any]:
    interaction = {
        "id": "8",
        "application_id": "99",
        "type": 2,
        "token": "abc",
        "channel_id": "5",
        "user": {"id": "42", "username": "ann"},
        "data": {"name": "ask", "options": [{"name": "text", "type": 3, "value": "hello"}]},
    }
    return {"t": "INTERACTION_CREATE", "d": {**interaction, **changes}}


def inbound(fields: dict[str, Any]) -> Inbound:
    found = normalise(fields, received_at=1_000)
    assert isinstance(found, Inbound)
    return found


@pytest.mark.parametrize("name", [name for name in NAMES if payload(name)["t"] == "MESSAGE_CREATE"])
def test_the_messages_are_such_as_discord_sends(name: str) -> None:
    """discord.py understands all of them."""
    fields = payload(name)["d"]
    channel = discord.PartialMessageable(state=_state(), id=int(fields["channel_id"]))
    message = discord.Message(state=_state(), channel=channel, data=fields)
    assert (str(message.id), message.content) == (fields["id"], fields["content"])
    assert [str(user.id) for user in message.mentions] == [user["id"] for user in fields["mentions"]]
    assert [file.url for file in message.attachments] == [file["url"] for file in fields["attachments"]]
    assert (message.webhook_id is not None) == (fields.get("webhook_id") is not None)
    assert message.type.value == fields["type"]


@pytest.mark.parametrize("name", [name for name in NAMES if payload(name)["t"] == "INTERACTION_CREATE"])
def test_the_interactions_are_such_as_discord_sends(name: str) -> None:
    fields = payload(name)["d"]
    interaction: Any = discord.Interaction(data=fields, state=_state())
    assert (str(interaction.id), interaction.type.value, interaction.token) == (
        fields["id"],
        fields["type"],
        fields["token"],
    )


def _state() -> ConnectionState[Any]:
    """What discord.py knows after READY."""
    state = discord.Client(intents=discord.Intents.default())._connection
    state.user = discord.ClientUser(state=state, data=ME)  # type: ignore[arg-type]
    return state


def test_a_message_is_known_by_its_id_whatever_else_changes() -> None:
    known = inbound(a_message())
    assert known.id == message_id("discord", "", "7")
    assert inbound(a_message(content="other", channel_id="6")).id == known.id
    assert inbound(a_message(id="9")).id != known.id
    assert inbound(a_command()).id == message_id("discord", "", "8")


def test_without_a_time_the_id_says_when_a_message_was_sent() -> None:
    sent = inbound(a_message(id="175928847299117063")).sent_at
    assert sent == 1462015105796  # the example of Discord's own documentation
    assert inbound(a_message(timestamp="2026-01-01T00:00:00+00:00")).sent_at == 1767225600000
    assert inbound(a_message(timestamp="2026-01-01T00:00:00")).sent_at == 1767225600000


def test_what_an_interaction_is_answered_through_comes_back_from_its_text() -> None:
    message = inbound(a_command()).message
    assert InteractionAnswer.parse(message) == InteractionAnswer("99", "abc")
    assert InteractionAnswer.parse("1400") is None and InteractionAnswer.parse(None) is None


@pytest.mark.parametrize("said", ["", " ", "\n"])
def test_a_mention_with_nothing_behind_it_is_kept_because_something_was_said(said: str) -> None:
    mention = {"id": "99", "username": "helper"}
    made = inbound(a_message(content=f"<@99>{said}", guild_id="1", channel_type=0, mentions=[mention]))
    assert (made.text, made.mentioned) == ("@helper", True)


def test_several_mentions_at_the_beginning_are_all_taken_away() -> None:
    made = inbound(a_message({"roles": ["3"]}, content="<@99> <@&3>: <@!99>, hello", guild_id="1", mention_roles=["3"]))
    assert (made.text, made.mentioned) == ("hello", True)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("hello <@99> \t<@!99>\n", "hello"),
        ("<@99>, hello <@99> there <@99>", "hello @helper there"),
        ("<@99> <@99> hello, <@99>x", "hello, @helperx"),
        ("<@99>\u2003hello", "hello"),
        ("x<@99><@99>", "x"),
    ],
)
def test_mentions_at_the_beginning_and_the_end_are_taken_away_and_others_stay(said: str, text: str) -> None:
    mention = {"id": "99", "username": "helper"}
    assert inbound(a_message(content=said, guild_id="1", mentions=[mention])).text == text


MANY_MENTIONS = """
from producers.discord.normalise import normalise
me = {"me": {"id": "99", "name": "Helper"}, "roles": ["3"], "channel": None, "parent": None, "names": {}}
message = {"id": "7", "channel_id": "5", "type": 0, "author": {"id": "42", "username": "ann"}}
for unit in ("<@99> ", "<@99>", "<@&3>\\n \\t", "<@!99>, ", " ", "<@99", "<a:", "<:w:"):
    for said in (unit * 20_000, "a " + unit * 20_000 + "x", unit * 20_000 + "x"):
        normalise({"t": "MESSAGE_CREATE", "d": {**message, "content": said}, "known": me}, 1)
"""


def test_twenty_thousand_mentions_in_one_message_do_not_hold_up_the_listener() -> None:
    """Linear work takes a second or so, quadratic work minutes, and exponential work for ever."""
    subprocess.run([sys.executable, "-c", MANY_MENTIONS], cwd=Path(__file__).parents[2], check=True, timeout=120)


def test_a_group_of_direct_messages_needs_a_mention() -> None:
    made = inbound(a_message(channel_type=3))
    assert (made.source.chat_type, made.mentioned) == ("group", False)


def test_a_name_is_kept_but_not_at_any_length_and_without_nul() -> None:
    made = inbound(a_message(author={"id": "42", "username": "A\0" + "n" * 1000}, content="a\0b"))
    assert made.source.user_name is not None and len(made.source.user_name) == 256
    assert "\0" not in made.source.user_name + made.text


@pytest.mark.parametrize(
    ("type", "response"), [(1, {"type": 1}), (3, {"type": 6}), (4, {"type": 8, "data": {"choices": []}}), (2, None)]
)
def test_whatever_is_no_command_is_acknowledged(type: int, response: Any) -> None:
    assert without_command({"type": type}) == response


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"t": "MESSAGE_CREATE"}, "d is not an object"),
        ({"t": "MESSAGE_CREATE", "d": {}}, "known is not an object"),
        (a_message(id=7), "id is not an id"),
        (a_message(id="7x"), "id is not an id"),
        (a_message(id="７"), "id is not an id"),
        (a_message(id="1" * 21), "id is not an id"),
        (a_message(author=None), "author is not an object"),
        (a_message(author={"id": 42}), "id is not an id"),
        (a_message(type="0"), "type is not a number"),
        (a_message(channel_id=None), "channel_id is not an id"),
        (a_message(guild_id=5), "guild_id is not an id"),
        (a_message(content=5), "content is not text"),
        (a_message(content="x" * 200_001), "content is not text"),
        (a_message(mentions={}), "mentions is not a list"),
        (a_message(mentions=[{}]), "id is not an id"),
        (a_message(guild_id="1", mention_roles=[3]), "mention_roles is not a list of ids"),
        (a_message(attachments=[{"url": "file:///etc/passwd"}]), "url is not an address"),
        (a_message(attachments=[{"url": "https://x/\n"}]), "url is not an address"),
        (a_message(timestamp="yesterday"), "timestamp is not a time"),
        (a_message(message_reference=5), "message_reference is not an object"),
        (a_message(message_reference={"message_id": 5}), "message_id is not an id"),
        (a_message({"me": {"id": 99}}), "id is not an id"),
        (a_message({"roles": "3"}), "roles is not a list of ids"),
        (a_command(type="2"), "type is not a number"),
        (a_command(token="a/../b"), "token is not a token"),
        (a_command(token=None), "token is not a token"),
        (a_command(application_id="x"), "application_id is not an id"),
        (a_command(user=None), "user is not an object"),
        (a_command(data=[]), "data is not an object"),
        (a_command(channel={"type": "x"}), "type is not a number"),
    ],
)
def test_an_event_that_cannot_be_understood_says_which_field(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Malformed, match=complaint):
        normalise(fields, 0)


JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), st.text(max_size=5)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for name, inner in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from _places(inner, (*path, name))


@given(st.data())
def test_whatever_stands_in_any_place_is_understood_or_malformed(data: st.DataObject) -> None:
    fields = payload(data.draw(st.sampled_from(NAMES)))
    *path, last = data.draw(st.sampled_from([place for place in _places(fields) if place]))
    holder: Any = fields
    for name in path:
        holder = holder[name]
    holder[last] = data.draw(JSON)
    without_command(fields["d"]) if isinstance(fields.get("d"), dict) else None
    try:
        found = normalise(fields, 0)
    except Malformed:
        return
    if isinstance(found, Inbound):
        assert decode_inbound(encode_mail(found)) == found


@given(st.text(max_size=50))
def test_a_text_without_marks_is_said_as_it_was_written(said: str) -> None:
    found = normalise(a_message(content=said), 0)
    if "<" not in said and "\0" not in said and said.strip():
        assert isinstance(found, Inbound) and found.text == said.strip()
