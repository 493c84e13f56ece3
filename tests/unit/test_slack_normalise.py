"""A payload of Slack's becomes an Inbound, a reason to leave it, or says which field stands in the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.heard import Ignored
from producers.slack.known import SlackBot, SlackKnown, SlackPlace
from producers.slack.normalise import channel_of, normalise, person_of
from producers.slack.text import readable
from shared.codec import message_id
from shared.errors import Malformed, Unavailable
from shared.mail import decode_inbound, encode_mail
from shared.messages import Inbound

PAYLOADS = Path(__file__).parents[1] / "payloads/slack"
NAMES = sorted(path.stem for path in PAYLOADS.glob("*.json") if "." not in path.stem)
BOT = SlackBot("U0BOT", "B0BOT", "T01TEAM", "helper")
KNOWN = SlackKnown(
    {
        "C01GEN": SlackPlace("channel", "general", "about general"),
        "C02MANY": SlackPlace("group"),
        "G01MANY": SlackPlace("group"),
    },
    {"U01ANN": "Ann"},
)


def payload(name: str) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads((PAYLOADS / f"{name}.json").read_bytes())
    return found


def a_message(**changes: Any) -> dict[str, Any]:
    event = {
        "type": "message",
        "channel": "C1",
        "channel_type": "channel",
        "user": "U1",
        "text": "hi",
        "ts": "1.000001",
    }
    return {"type": "event_callback", "event_id": "Ev1", "event": {**event, **changes}}


def a_command(**changes: Any) -> dict[str, Any]:
    place = {"channel_id": "C1", "channel_name": "general"}
    return {"command": "/new", "text": "", **place, "user_id": "U1", "trigger_id": "1.2.x", **changes}


def inbound(fields: dict[str, Any], bot: SlackBot = BOT, known: SlackKnown = KNOWN) -> Inbound:
    found = normalise(fields, bot, known, received_at=1_000)
    assert isinstance(found, Inbound)
    return found


def test_a_mention_that_comes_as_two_events_is_one_message() -> None:
    as_message, as_mention = payload("channel_mention"), payload("channel_mention_as_app_mention")
    assert as_message["event_id"] != as_mention["event_id"]
    assert inbound(as_message) == inbound(as_mention)


def test_team_channel_and_time_decide_the_message_id_and_the_event_does_not() -> None:
    known = inbound(a_message())
    assert known.id == message_id("slack", "", "T01TEAM:C1:1.000001")
    assert inbound({**a_message(), "event_id": "Ev2"}).id == known.id
    others = [inbound(a_message(ts="1.000002")), inbound(a_message(channel="C2")), inbound(a_command())]
    others.append(inbound(a_message(), SlackBot("U0BOT", "B0BOT", "T2")))
    assert len({known.id, *(other.id for other in others)}) == 5


@pytest.mark.parametrize(
    ("channel", "channel_type", "kind"),
    [
        ("D1", "im", "dm"),
        ("D1", None, "dm"),
        ("D1", "app_home", "dm"),
        ("C1", "mpim", "group"),
        ("G01MANY", None, "group"),  # asked of Slack
        ("C1", "group", "channel"),
        ("C01GEN", "strange", "channel"),
    ],
)
def test_the_kind_of_a_chat_is_what_slack_says_or_what_its_id_shows(channel: str, channel_type: Any, kind: str) -> None:
    assert inbound(a_message(channel=channel, channel_type=channel_type)).source.chat_type == kind


@pytest.mark.parametrize("channel_type", [None, "strange"])
def test_a_chat_whose_kind_slack_has_not_told_is_not_guessed(channel_type: Any) -> None:
    with pytest.raises(Unavailable):
        normalise(a_message(channel="G9", channel_type=channel_type), BOT, KNOWN, 0)


@pytest.mark.parametrize(
    ("name", "kind"), [("general", "channel"), ("directmessage", "dm"), ("mpdm-ann--bob-1", "group"), (None, None)]
)
def test_the_name_of_a_chat_tells_the_kind_of_a_command_and_of_a_button(name: str | None, kind: str | None) -> None:
    pressed = payload("button")
    pressed["channel"] = {"id": "G9", "name": name if name is not None else "privategroup"}
    for told in (a_command(channel_id="G9", channel_name=name), pressed):
        if kind is None:
            with pytest.raises(Unavailable):
                normalise(told, BOT, KNOWN, 0)
        else:
            assert inbound(told).source.chat_type == kind


def test_an_answer_opens_a_thread_in_a_channel_unless_the_settings_say_otherwise() -> None:
    flat = SlackBot("U0BOT", "B0BOT", "T01TEAM", opens_threads=False)
    assert inbound(a_message()).source.thread == "1.000001"
    assert inbound(a_message(), flat).source.thread is None
    for bot in (BOT, flat):
        assert inbound(a_message(thread_ts="0.5"), bot).source.thread == "0.5"
        assert inbound(a_message(channel="D1", channel_type="im"), bot).source.thread is None
    assert inbound(a_message(thread_ts="1.000001"), flat).reply_to is None  # the message that a thread hangs under


def test_a_slash_command_that_only_asks_is_its_words() -> None:
    assert inbound(a_command(command="/ask", text=" hello ")).text == "hello"
    assert inbound(a_command(command="/asks", text="hello")).text == "/asks hello"
    assert normalise(a_command(command="/ask"), BOT, KNOWN, 0) == Ignored("empty")
    assert (
        inbound(a_command(command="/bot", text="hello"), SlackBot("U0BOT", "B0BOT", "T1", asks=("/bot",))).text
        == "hello"
    )


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("<@U0BOT> hello", "hello"),
        ("<@U0BOT>, hello", "hello"),
        ("  <@U0BOT|helper>:\nhello", "hello"),
        ("<@U0BOT> <@U0BOT> hello", "hello"),
        ("hello <@U0BOT>", "hello"),
        ("hello, <@U0BOT>!", "hello,!"),
        ("<@U0BOT> /new", "/new"),
        ("<@U02BOB|bob> and <@U02BOB>", "@bob and @U02BOB"),
        ("<#C1|general> <#C1>", "#general #C1"),
        ("<!here> <!channel> <!everyone>", "@here @channel @everyone"),
        ("<!subteam^S1|@ops> <!subteam^S1>", "@ops @S1"),
        ("<!date^1767225600^{date}|1 January>", "1 January"),
        ("<https://x.org/a?b=1&amp;c=2>", "https://x.org/a?b=1&c=2"),
        ("<https://x.org|docs>", "docs (https://x.org)"),
        ("<http://x.org|x.org>", "x.org"),
        ("<mailto:a@x.org|a@x.org>", "a@x.org"),
        ("a &lt; b &amp;&amp; c &gt; d, &amp;lt;", "a < b && c > d, &lt;"),
        ("&lt;@U0BOT&gt; no mention", "<@U0BOT> no mention"),
        ("<> < > <\n> <", "<> < > <\n> <"),
        ("nul \0 here", "nul � here"),
        ("hi <|x> and <|>", "hi x and"),
    ],
)
def test_a_text_is_what_people_read(raw: str, text: str) -> None:
    assert readable(raw, "U0BOT").text == text


@pytest.mark.parametrize("raw", ["<@U0BOT>", "x <@U0BOT> y", "<@U0BOT|helper>", "(<@U0BOT>)"])
def test_a_mention_is_found_wherever_it_stands(raw: str) -> None:
    assert readable(raw, "U0BOT").mentioned


@pytest.mark.parametrize("raw", ["@U0BOT", "<@U0BOTX>", "<@U0BO>", "&lt;@U0BOT&gt;", "<#U0BOT>", "<@u0bot>"])
def test_what_only_looks_like_a_mention_is_none(raw: str) -> None:
    assert not readable(raw, "U0BOT").mentioned


@given(st.text(alphabet="<>|@#!^&; \nab", max_size=40) | st.text(max_size=200))
def test_no_text_is_too_odd_to_read(raw: str) -> None:
    readable(raw, "U0BOT").text.encode()


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({}, "type is not text"),
        ({"type": 5}, "type is not text"),
        ({"type": "event_callback"}, "event is not an object"),
        (a_message(channel=None), "channel is not an id"),
        (a_message(channel="c 1"), "channel is not an id"),
        (a_message(user="U1:2"), "user is not an id"),
        (a_message(user=7), "user is not text"),
        (a_message(ts=1.5), "ts is not text"),
        (a_message(ts="1e5"), "ts is not the id of a message"),
        (a_message(thread_ts="x"), "thread_ts is not the id of a message"),
        (a_message(text=5), "text is not text"),
        (a_message(text="x" * 200_001), "text is not text"),
        (a_message(files={}), "files is not a list"),
        (a_message(files=[{}]), "id is not a file's"),
        (a_message(files=[{"id": "F1/../x"}]), "id is not a file's"),
        (a_command(command="new"), "command is not a command"),
        (a_command(command=["/new"]), "command is not text"),
        (a_command(trigger_id=None), "trigger_id is not an id"),
        (a_command(user_id="@ann"), "user_id is not an id"),
    ],
)
def test_a_payload_that_cannot_be_understood_says_which_field(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Malformed, match=complaint):
        normalise(fields, BOT, KNOWN, 0)


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
    channel_of(fields), person_of(fields)
    try:
        found = normalise(fields, BOT, KNOWN, 0)
    except (Malformed, Unavailable):
        return
    if isinstance(found, Inbound):
        assert decode_inbound(encode_mail(found)) == found


@pytest.mark.parametrize("fields", [{}, {"event": 1}, {"event": {"channel": []}}, {"channel": {"id": "C1"}}])
def test_a_payload_without_a_channel_has_an_order_of_its_own(fields: dict[str, Any]) -> None:
    assert channel_of(fields) == ""


def test_payloads_of_a_channel_share_its_order() -> None:
    names = ("channel_mention", "slash_command", "button", "channel_join")
    assert {channel_of(payload(name)) for name in names} == {"C01GEN"}
