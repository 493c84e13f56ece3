"""`keyturn deliveries`, as a person types it: what waits for each chat, letting it go on, and giving it up."""

# ruff: noqa: F811
from __future__ import annotations

from datetime import timedelta

import pytest

from shared.errors import RateLimited, Undeliverable
from shared.messages import Part, Receipt
from shared.operating import deliveries
from shared.operating.dead_letters import drop_letter, replay_letter
from shared.pipeline import Pipeline
from shared.platforms.facts import Idempotency
from shared.reading.dead_letters import LetterState, dead_letters
from shared.reading.destinations import DestinationParts, parts_of_destination
from shared.reading.keys import KeyPhase
from tests.flow.test_cli import Cli, cli, environment, lone_cli  # noqa: F401 (fixtures)
from tests.store.books import ask
from tests.support.pipe import Rig, key_of
from workers.delivery.deliver import Deliveries, deliver_parts

DESTINATION = "to:webhook:c1"


class Answering:
    """A platform that gives these answers one after another, then takes everything."""

    idempotency = Idempotency.NATIVE

    def __init__(self, *answers: Exception) -> None:
        self.answers = list(answers)
        self.sent: list[str] = []

    async def send(self, part: Part) -> Receipt:
        if self.answers:
            raise self.answers.pop(0)
        self.sent.append(part.text)
        return Receipt("m1")


async def decide(rig: Rig, *texts: str) -> None:
    """Replies that wait to be sent."""
    for text in texts:
        await rig.accept(text)
        await rig.run_turns()


async def deliver(rig: Rig, sender: Answering) -> None:
    _, lease = await rig.start(rig.pipe.deliveries, DESTINATION)
    assert lease is not None
    await deliver_parts(lease, Deliveries(rig.pipe, {"webhook": sender}))


async def test_a_chat_that_was_asked_to_wait_is_listed_and_goes_on_when_it_is_released(rig: Rig, cli: Cli) -> None:
    assert (await cli("deliveries", "list")).out == "nothing waits to be sent\n"
    sender = Answering(RateLimited(timedelta(hours=1)))
    await decide(rig, "one", "two")
    await deliver(rig, sender)
    [listed] = (await cli("deliveries", "list", "--json")).json
    assert (listed["destination"], listed["state"], listed["waiting"]) == (DESTINATION, "delayed", 2)
    assert listed["until"] is not None and (listed["ambiguous"], listed["buried"], listed["closed"]) == (0, 0, None)
    assert DESTINATION in (await cli("deliveries", "list")).out
    assert "wait 3600.0 s" in (await cli("deliveries", "list", DESTINATION)).out
    released = await cli("deliveries", "release", DESTINATION)
    assert released.out == f"{DESTINATION} was delayed: 2 waiting\n"
    await deliver(rig, sender)
    assert sender.sent == ["echo: one", "echo: two"]
    nothing = await cli("deliveries", "release", DESTINATION)
    assert nothing.code == 1 and "nothing waits" in nothing.err


async def test_what_was_given_up_is_listed_with_its_dead_letter_and_sent_again_by_release(rig: Rig, cli: Cli) -> None:
    sender = Answering(Undeliverable("no"), Undeliverable("no"))
    await decide(rig, "one", "two")
    await deliver(rig, sender)
    [listed] = (await cli("deliveries", "list", "--json")).json
    assert (listed["state"], listed["waiting"], listed["buried"]) == ("idle", 0, 2)
    parts = (await cli("deliveries", "list", DESTINATION, "--json")).json
    assert (parts["waiting"], len({each["letter"] for each in parts["buried"]})) == ([], 2)
    assert (await cli("deliveries", "release", DESTINATION)).code == 1  # nothing waits: what was given up stays so
    released = (await cli("deliveries", "release", DESTINATION, "--buried", "--json")).json
    assert released["sent_again"] == 2
    await deliver(rig, sender)
    assert sender.sent == ["echo: one", "echo: two"]


async def test_two_operators_who_release_or_drop_a_chat_at_once_do_not_hold_up_each_other(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them deals with a dead letter while the other is about to."""
    sender = Answering(Undeliverable("no"), Undeliverable("no"), RateLimited(timedelta(hours=1)))
    await decide(rig, "one", "two", "three")
    await deliver(rig, sender)

    async def look(pipe: Pipeline, destination: str, limit: int) -> DestinationParts:
        found = await parts_of_destination(pipe, destination, limit)
        await (
            replay_letter(pipe, found.buried[-1].letter)
            if found.waiting
            else drop_letter(pipe.store, found.buried[-1].letter)
        )
        return found

    monkeypatch.setattr(deliveries, "parts_of_destination", look)
    released = await deliveries.release_destination(rig.pipe, DESTINATION, buried=True)
    assert (released.was, released.waiting, released.sent_again) == (KeyPhase.DELAYED, 1, 1)
    await deliver(rig, sender)
    assert sorted(sender.sent) == ["echo: one", "echo: three", "echo: two"]
    await decide(rig, "four", "five")
    await deliver(rig, Answering(Undeliverable("no"), Undeliverable("no")))
    assert len((await deliveries.drop_parts(rig.pipe, DESTINATION)).letters) == 1
    assert await dead_letters(rig.pipe.store, LetterState.OPEN, 10) == []


async def test_what_is_dropped_is_never_sent_and_what_is_being_sent_is_left(rig: Rig, cli: Cli) -> None:
    await decide(rig, "one", "two", "three")
    taken = await rig.pipe.store.outbox.take(DESTINATION, "a worker")
    assert taken is not None
    two = taken.id + 1
    assert (await cli("deliveries", "drop", DESTINATION, "--part", str(two), "-y")).out == (
        "1 dropped, 0 dead letters closed\n"
    )
    dropped = (await cli("deliveries", "drop", DESTINATION, "-y", "--json")).json
    assert (dropped["dropped"], dropped["being_sent"]) == ([two + 1], 1)
    await rig.pipe.store.outbox.failed(taken, "later")
    sender = Answering()
    await deliver(rig, sender)
    assert sender.sent == ["echo: one"]
    rows = await ask(rig.pipe.store, "SELECT state, reason FROM outbox ORDER BY id")
    assert [tuple(row.values()) for row in rows] == [("sent", None), ("buried", "dropped"), ("buried", "dropped")]
    assert await ask(rig.pipe.store, "SELECT id FROM dead") == []
    assert (await cli("deliveries", "drop", DESTINATION, "-y")).code == 1


async def test_a_drop_closes_the_dead_letters_of_what_was_given_up_before(rig: Rig, cli: Cli) -> None:
    await decide(rig, "one")
    await deliver(rig, Answering(Undeliverable("no")))
    assert (await cli("deliveries", "drop", DESTINATION, "-y")).out == "0 dropped, 1 dead letters closed\n"
    assert (await cli("deliveries", "list", "--json")).json == []
    assert (await cli("dead", "list", "--state", "dropped", "--json")).json[0]["reason"] == "refused"


async def test_a_closed_chat_is_listed_with_its_reason_and_opened_by_release(rig: Rig, cli: Cli) -> None:
    await decide(rig, "one")
    await deliver(rig, Answering(Undeliverable("blocked", closes_chat=True)))
    [listed] = (await cli("deliveries", "list", "--json")).json
    assert (listed["closed"], listed["buried"]) == ("blocked", 1)
    doctor = (await cli("doctor", "--json")).json["checks"]
    [finding] = [check for check in doctor if check["check"] == "closed chats"]
    assert "1 chat takes nothing" in finding["detail"] and "deliveries list" in finding["fix"]
    assert (await cli("deliveries", "release", DESTINATION, "--json")).json["was_closed"] is True
    assert (await cli("deliveries", "list", "--json")).json[0]["closed"] is None


async def test_what_is_no_destination_is_refused_in_words(cli: Cli) -> None:
    for command in ("release", "drop"):
        printed = await cli("deliveries", command, key_of(), *(["-y"] if command == "drop" else []))
        assert printed.code == 1 and "is no destination" in printed.err
