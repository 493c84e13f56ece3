"""What every way in promises, whatever its platform: webhooks and held connections, on real Valkey and SQLite.

A platform joins by its case in tests/contract/<platform>.py; tests/contract/case.py says what belongs into it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from copy import deepcopy
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from shared.errors import ConfigurationError, Unavailable
from shared.pipeline import open_pipeline
from shared.platforms import PLATFORMS
from tests.contract.case import Held, Incoming, NotHere, Webhook
from tests.contract.found import WAYS_IN, require_case
from tests.contract.hostile import HOSTILE, SOME, UNPAIRED
from tests.contract.inlet import (
    PATIENCE_SECONDS,
    HeldInlet,
    Inlet,
    MakeSettings,
    WebhookInlet,
    open_inlet,
    open_webhook,
)
from tests.store.books import ask
from tests.support.door import open_door

WEBHOOKS = [way for way in WAYS_IN if issubclass(way, Webhook)]
CONNECTIONS = [way for way in WAYS_IN if issubclass(way, Held)]
QUESTION = f"ask_{'0123456789abcdef' * 2}_000"
PRESSED, CHOSEN = f"/approve {QUESTION}", f"/answer {QUESTION} 2"
FORGED = (
    "/new",
    "/approve",
    "/approve 1",
    f"/stop {QUESTION}",
    f"/answer {QUESTION} yes",
    f"{PRESSED}\n/new",
    "/" * 500,
)
WRONG_VALUES: tuple[Any, ...] = (None, True, -1, 1.5, 2**62, "x", "a\0b", [], [{}], {})


def named(way: type[Incoming]) -> str:
    return f"{way.platform}-{way.way}"


@pytest.fixture(params=WAYS_IN, ids=named)
async def case(request: pytest.FixtureRequest) -> AsyncIterator[Incoming]:
    async with request.param.open() as opened:
        yield opened


@pytest.fixture
async def inlet(case: Incoming, make_settings: MakeSettings) -> AsyncIterator[Inlet]:
    async with open_inlet(case, make_settings) as opened:
        yield opened


@pytest.fixture(params=WEBHOOKS, ids=named)
async def webhook(request: pytest.FixtureRequest) -> AsyncIterator[Webhook]:
    async with request.param.open() as opened:
        yield opened


@pytest.fixture
async def hook(webhook: Webhook, make_settings: MakeSettings) -> AsyncIterator[WebhookInlet]:
    async with open_webhook(webhook, make_settings, webhook.secrets[0]) as opened:
        yield opened


@pytest.mark.parametrize("platform", list(PLATFORMS))
def test_every_platform_has_a_case_for_each_of_its_ways_in(platform: str) -> None:
    facts, ways = PLATFORMS[platform], require_case(platform).RECEIVING
    assert [way.platform for way in ways] == [platform] * len(ways)
    assert any(issubclass(way, Webhook) for way in ways) == facts.receives
    assert any(issubclass(way, Held) for way in ways) == facts.listens


# What is taken in.


async def test_a_message_is_taken_in_once_however_often_it_comes(case: Incoming, inlet: Inlet) -> None:
    for _ in range(2):
        await inlet.bring(case.said("hello", id=1))
    assert await inlet.kept() == ["hello"]
    await inlet.bring(case.said("hello", id=1))
    assert await inlet.kept() == ["hello"]
    assert await inlet.recorded() == []


async def test_messages_of_a_chat_keep_their_order(case: Incoming, inlet: Inlet) -> None:
    texts = [f"number {n}" for n in range(8)]
    for n, text in enumerate(texts, 1):
        await inlet.bring(case.said(text, id=n))
        await inlet.bring(case.said(f"elsewhere {n}", id=100 + n, chat=2))
    kept = await inlet.kept()
    assert [text for text in kept if text.startswith("number")] == texts
    assert len(kept) == 2 * len(texts)


async def test_a_message_of_our_own_is_no_message_to_us(case: Incoming, inlet: Inlet) -> None:
    if isinstance(case.own, NotHere):
        assert PLATFORMS[case.platform].trusts_sender, "a platform where people write also shows the bot its own words"
        return
    await inlet.bring(case.own)
    assert await inlet.kept() == [] and await inlet.recorded() == []


async def test_events_that_are_no_message_are_left(case: Incoming, inlet: Inlet) -> None:
    if isinstance(case.others, NotHere):
        assert PLATFORMS[case.platform].trusts_sender, "only a program of the operator's posts nothing but messages"
        return
    assert case.others
    for payload in case.others.values():
        await inlet.bring(payload)
    assert await inlet.kept() == [] and await inlet.recorded() == []


async def test_a_stranger_is_not_let_in(case: Incoming, inlet: Inlet) -> None:
    """Where the sender is a program of the operator's, its key is the permission, for any user that it names."""
    payload = case.said_by_stranger("let me in", id=1)
    if isinstance(payload, NotHere):
        assert PLATFORMS[case.platform].trusts_sender
        return
    assert not PLATFORMS[case.platform].trusts_sender
    await inlet.bring(payload)
    assert await inlet.kept() == [] and await inlet.recorded() == []
    assert [line["event"] for line in inlet.lines if line["log_level"] == "warning"] == ["stranger turned away"]


# What a pressed button says.


async def test_a_pressed_button_gives_its_command_once_however_often_it_comes(case: Incoming, inlet: Inlet) -> None:
    if isinstance(case.pressed(PRESSED, id=1), NotHere):
        assert PLATFORMS[case.platform].buttons is None
        return
    assert PLATFORMS[case.platform].buttons is not None
    for _ in range(2):
        await inlet.bring(case.pressed(PRESSED, id=1))
    await inlet.bring(case.pressed(CHOSEN, id=2))
    assert await inlet.kept() == [PRESSED, CHOSEN]
    assert await inlet.recorded() == []


async def test_a_pressed_button_is_said_in_the_conversation_that_its_message_is_in(
    case: Incoming, inlet: Inlet
) -> None:
    if isinstance(case.pressed(PRESSED, id=1), NotHere):
        return
    await inlet.bring(case.said("hello", id=1))
    await inlet.bring(case.pressed(PRESSED, id=2))
    assert await inlet.kept() == ["hello", PRESSED]
    said, pressed = [
        orjson.loads(row["payload"])["inbound"]["source"]
        for row in await ask(inlet.pipe.store, "SELECT payload FROM inbox ORDER BY seq LIMIT 2")
    ]
    ids = ("platform", "account", "chat", "chat_type", "thread", "scope", "user", "user_alt")
    assert {id: said.get(id) for id in ids} == {id: pressed.get(id) for id in ids}


@pytest.mark.parametrize("data", FORGED)
async def test_forged_data_of_a_button_commands_nothing(case: Incoming, inlet: Inlet, data: str) -> None:
    if isinstance(payload := case.pressed(data, id=1), NotHere):
        return
    await inlet.bring(payload)
    assert [text for text in await inlet.kept() if text.startswith("/")] == []
    inlet.nothing_unforeseen()


async def test_a_stranger_who_presses_a_button_is_not_let_in(case: Incoming, inlet: Inlet) -> None:
    if isinstance(payload := case.pressed(PRESSED, id=1, by_stranger=True), NotHere):
        return
    await inlet.bring(payload)
    assert await inlet.kept() == [] and await inlet.recorded() == []


# What cannot be understood.


async def test_what_cannot_be_understood_is_recorded_once_and_holds_up_nothing(case: Incoming, inlet: Inlet) -> None:
    assert case.shapeless
    for payload in (*case.shapeless, *case.shapeless):
        await inlet.bring(payload)
    await inlet.bring(case.said("hello", id=1))
    assert await inlet.kept() == ["hello"]
    inlet.nothing_unforeseen()
    recorded = await inlet.recorded()
    if isinstance(case, Webhook) and case.recorded == 422:
        assert PLATFORMS[case.platform].trusts_sender and recorded == []  # the caller was told, and can read
    else:
        assert [(row["kind"], row["reason"]) for row in recorded] == [("request", "malformed")] * len(case.shapeless)


async def test_a_wrong_value_in_any_field_breaks_nothing(case: Incoming, inlet: Inlet) -> None:
    """Each value in each place, of a message that is good otherwise: it is taken, left or recorded."""
    id = 1000
    for place in _places(case.said("hello", id=id)):
        if place[0] in case.transport_fields and isinstance(case, Held):
            continue
        for value in WRONG_VALUES:
            id += 1
            await inlet.bring(_with(case.said("hello", id=id), place, value))
    await inlet.bring(case.said("still here", id=1))
    assert "still here" in await inlet.kept()
    inlet.nothing_unforeseen()


async def test_json_that_is_too_deep_or_none_breaks_nothing(case: Incoming, inlet: Inlet) -> None:
    bodies = [b'{"a":' * 50_000 + b"1" + b"}" * 50_000, b"{", b'{"a": "\\ud800"}', b"\xff\xfe"]
    if isinstance(case, Held) and case.unreadable is not None:
        assert case.unreadable.reason
        return
    for body in bodies:
        await inlet.bring_raw(body)
    await inlet.bring(case.said("still here", id=1))
    assert await inlet.kept() == ["still here"]
    inlet.nothing_unforeseen()


async def test_a_hostile_text_is_taken_in_as_it_is_and_holds_up_nothing(case: Incoming, inlet: Inlet) -> None:
    for id, text in enumerate(HOSTILE.values(), 2000):
        await inlet.bring(case.said(f"begin {text} end", id=id))
    kept = await inlet.kept()
    assert [text for text in kept if not text.startswith("begin") or not text.endswith("end")] == []
    assert len(kept) == len(HOSTILE) and await inlet.recorded() == []
    inlet.nothing_unforeseen()


async def test_a_hostile_text_in_any_field_breaks_nothing(case: Incoming, inlet: Inlet) -> None:
    """In place of each text of a message that is good otherwise: it is taken, left or recorded."""
    id = 3000
    for place in _places(case.said("hello", id=id)):
        if not isinstance(_at(case.said("hello", id=id), place), str):
            continue
        if place[0] in case.transport_fields and isinstance(case, Held):
            continue
        for text in SOME:
            id += 1
            await inlet.bring(_with(case.said("hello", id=id), place, text))
    await inlet.bring(case.said("still here", id=1))
    assert "still here" in await inlet.kept()
    inlet.nothing_unforeseen()


async def test_half_a_character_in_json_breaks_nothing(case: Incoming, inlet: Inlet) -> None:
    if isinstance(case, Held) and case.unreadable is not None:
        assert case.unreadable.reason
        return
    good = orjson.dumps(case.said("MARK", id=2))
    for half in UNPAIRED:
        written = json.dumps(half)[1:-1].encode()
        await inlet.bring_raw(good.replace(b"MARK", written))
    await inlet.bring(case.said("still here", id=1))
    assert await inlet.kept() == ["still here"]
    inlet.nothing_unforeseen()


# Stores that are away.


async def test_a_webhook_that_the_journal_cannot_keep_is_503_and_taken_when_it_comes_again(
    webhook: Webhook, hook: WebhookInlet, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("shared.door.reach", _away_at("accept.before_journal"))
        response = await hook.post(webhook.said("hello", id=1))
    assert (response.status_code, "retry-after" in response.headers) == (503, True)
    assert await hook.door.nothing_stored()
    assert (await hook.post(webhook.said("hello", id=1))).status_code in webhook.taken
    assert await hook.kept() == ["hello"]


@pytest.mark.parametrize("way", CONNECTIONS, ids=named)
@pytest.mark.parametrize("point", ["accept.before_journal", "accept.after_journal"])
async def test_what_a_connection_brings_is_kept_once_whatever_the_journal_does_meanwhile(
    way: type[Held], point: str, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it is settled, the platform has it, or the spool where the platform never brings anything again."""
    async with way.open() as case, open_inlet(case, make_settings) as inlet:
        assert isinstance(inlet, HeldInlet)
        with monkeypatch.context() as patch:
            away = _away_at(point)
            patch.setattr("shared.door.reach", away)
            for n in range(1, 4):
                await inlet.bring(case.said(f"number {n}", id=n))
            async with asyncio.timeout(PATIENCE_SECONDS):
                await away.reached.wait()
            unconfirmed = case.unconfirmed()
            assert isinstance(unconfirmed, NotHere) or unconfirmed > 0
        assert await inlet.kept() == ["number 1", "number 2", "number 3"]


@pytest.mark.parametrize("way", CONNECTIONS, ids=named)
async def test_a_listener_that_ends_while_the_journal_is_away_leaves_nothing_behind_for_ever(
    way: type[Held], make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with way.open() as case, open_inlet(case, make_settings) as inlet:
        assert isinstance(inlet, HeldInlet)
        with monkeypatch.context() as patch:
            away = _away_at("accept.before_journal")
            patch.setattr("shared.door.reach", away)
            await inlet.bring(case.said("number 1", id=1))
            async with asyncio.timeout(PATIENCE_SECONDS):
                await away.reached.wait()
            await inlet.stop()
        assert await inlet.kept() == ["number 1"]


# Who is let in.


async def test_a_request_without_its_proof_is_401_and_leaves_nothing(
    webhook: Webhook, hook: WebhookInlet, subtests: pytest.Subtests
) -> None:
    body = orjson.dumps(webhook.said("hello", id=1))
    good = webhook.post(body, webhook.secrets[0])
    assert webhook.proofs
    for proof in webhook.proofs:
        others = [(name, value) for name, value in good.headers if name.lower() != proof]
        [value] = [value for name, value in good.headers if name.lower() == proof]
        wrong = [others, [*others, (proof, "")], [*others, (proof, "x\xff")], [*others, (proof, value + "0")]]
        wrong.append([*good.headers, (proof, value)])  # twice: nobody could say which one was meant
        for headers in wrong:
            with subtests.test(proof, headers=headers):
                response = await hook.door.request(good.method, good.path, headers, body)
                assert (response.status_code, response.json()) == (401, {"error": "not authorised"})
                await hook.door.refused(401)


async def test_a_request_with_another_secret_or_another_body_is_401_and_leaves_nothing(
    webhook: Webhook, hook: WebhookInlet
) -> None:
    body, other = (orjson.dumps(webhook.said(text, id=1)) for text in ("hello", "other"))
    forged = [webhook.post(body, webhook.secrets[1])]
    before, after = webhook.post(body, webhook.secrets[0]), webhook.post(other, webhook.secrets[0])
    if before.headers != after.headers:  # what was signed is the body: another must not pass under its signature
        forged.append(type(before)(before.path, other, before.headers, before.method))
    for post in forged:
        response = await hook.send(post)
        assert (response.status_code, response.json()) == (401, {"error": "not authorised"})
        await hook.door.refused(401)


async def test_a_request_from_long_ago_is_not_taken_again(webhook: Webhook, hook: WebhookInlet) -> None:
    """A signed time goes stale. Where no time is signed, a replay is a duplicate, for ever."""
    body = orjson.dumps(webhook.said("hello", id=1))
    if isinstance(webhook.oldest_seconds, NotHere):
        for _ in range(2):
            assert (await hook.send(webhook.post(body, webhook.secrets[0]))).status_code in (*webhook.taken, 200)
        assert await hook.kept() == ["hello"]
        return
    for ahead in (-webhook.oldest_seconds - 5, webhook.oldest_seconds + 600):
        assert (await hook.send(webhook.post(body, webhook.secrets[0], ahead=ahead))).status_code == 401
        await hook.door.refused(401)
    for ahead in (0, 60 - webhook.oldest_seconds):
        assert (await hook.send(webhook.post(body, webhook.secrets[0], ahead=ahead))).status_code in (
            *webhook.taken,
            200,
        )
    assert await hook.kept() == ["hello"]


async def test_while_a_secret_is_rotated_both_are_let_in(webhook: Webhook, make_settings: MakeSettings) -> None:
    if isinstance(webhook.rotates, NotHere):
        assert webhook.rotates.reason
        return
    async with open_webhook(webhook, make_settings, *webhook.secrets) as hook:
        for n, secret in enumerate((*webhook.secrets, *reversed(webhook.secrets)), 1):
            body = orjson.dumps(webhook.said("hello", id=(n + 1) // 2))  # the second pair repeats what the first said
            assert (await hook.send(webhook.post(body, secret))).status_code in (*webhook.taken, 200)
        assert len(await hook.kept()) == 2


async def test_a_body_that_is_too_large_is_413_and_leaves_nothing(webhook: Webhook, hook: WebhookInlet) -> None:
    body = orjson.dumps(webhook.said("x" * (hook.pipe.settings.max_body_bytes + 1), id=1))
    response = await hook.send(webhook.post(body, webhook.secrets[0]))
    assert (response.status_code, response.json()) == (413, {"error": "too large"})
    await hook.door.refused(413)


async def test_a_handshake_is_answered_to_those_who_know_the_secret_alone(
    webhook: Webhook, hook: WebhookInlet, subtests: pytest.Subtests
) -> None:
    for handshake in webhook.handshakes:
        with subtests.test(handshake.post.path):
            answered = await hook.send(handshake.post)
            assert (answered.status_code, answered.content) == (200, handshake.answer)
            assert (await hook.send(handshake.forged)).status_code in (401, 403)
            assert await hook.door.nothing_stored()
            hook.nothing_unforeseen()


async def test_a_receiver_without_its_secret_is_not_there(webhook: Webhook, make_settings: MakeSettings) -> None:
    """Nobody is let in by an empty secret: the route is missing, or refuses everybody."""
    async with open_pipeline(make_settings(**webhook.blocks())) as pipe, open_door(pipe) as door:
        for secret in webhook.secrets:
            post = webhook.post(orjson.dumps(webhook.said("hello", id=1)), secret)
            assert (await door.request(post.method, post.path, post.headers, post.body)).status_code in (401, 404)
        assert await door.nothing_stored()


@pytest.mark.parametrize("platform", [name for name, facts in PLATFORMS.items() if facts.settings is not None])
def test_a_platform_that_is_turned_on_without_its_secrets_does_not_start(platform: str) -> None:
    """And one of which nothing is set is off."""
    kind = PLATFORMS[platform].settings
    assert kind is not None and not kind().on
    with pytest.raises((ValidationError, ConfigurationError)):
        kind(enabled=True).check()


class _away_at:
    """A journal that is away whenever this point is reached."""

    def __init__(self, point: str) -> None:
        self._point = point
        self.reached = asyncio.Event()

    def __call__(self, here: str) -> None:
        if here == self._point:
            self.reached.set()
            raise Unavailable("the database is away")


def _places(payload: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = payload.items() if isinstance(payload, dict) else enumerate(payload) if isinstance(payload, list) else ()
    for name, value in inner:
        yield (*path, name)
        yield from _places(value, (*path, name))


def _at(payload: Any, place: tuple[Any, ...]) -> Any:
    for name in place:
        payload = payload[name]
    return payload


def _with(payload: Any, place: tuple[Any, ...], value: Any) -> Any:
    changed = deepcopy(payload)
    *path, last = place
    holder = changed
    for name in path:
        holder = holder[name]
    holder[last] = value
    return changed
