"""The protocol holds in every state that these bounds can reach, and each of its protections is needed.

Every configuration is explored whole: all interleavings, with its faults at every step. `pytest -s` shows how many
states that is; a lower bound on it keeps anyone from shrinking a configuration by accident. Removing one protection makes
a mutant, and for each the shortest way to a broken promise is found and shown.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.control import Control
from tests.model.deliveries import Deliveries
from tests.model.draining import Draining
from tests.model.explore import Model, Walk, explore
from tests.model.turns import Turns

ANY = -1  # a fault that may happen any number of times
TWO = (0, 0)  # two messages of one key

TURNS = [
    (Turns("redelivery, deaths and a zombie", TWO, (0,), faults={"crash": 1, "die": 1, "expire": 1}), 50_000),
    (Turns("leases that run out at any instant", TWO, faults={"expire": ANY, "crash": 1}), 25_000),
    (Turns("FLUSHALL and zombies", TWO, faults={"flush": 1, "expire": 1}), 30_000),
    (Turns("FLUSHALL and a death", TWO, faults={"flush": 1, "crash": 1, "die": 1}), 12_000),
    (Turns("failover to a stale replica", TWO, faults={"failover": 1, "crash": 1}), 20_000),
    (Turns("lost tail of a mailbox", TWO, (1,), faults={"tail": 1, "crash": 1}), 4_000),
    (Turns("two keys on one session, and compaction", (0, 1), rewrites=1, faults={"crash": 1}), 12_000),
    (Turns("two keys that meet on one session", (0, 1, 0), joined=True, faults={"crash": 1}), 10_000),
    (Turns("two keys that meet, flushed", (0, 1), joined=True, faults={"flush": 1}), 10_000),
    (Turns("compaction beside a zombie", TWO, rewrites=1, faults={"expire": 1}), 30_000),
    (Turns("poison that kills its worker", TWO, limit=2, killed=2, poison="either", faults={"expire": 1}), 10_000),
    (Turns("poison that fails, and FLUSHALL", TWO, limit=2, poison="raise", faults={"flush": 1}), 15_000),
    (
        Turns("attempts are a message's own", TWO, limit=2, faults={"raise": 1, "die": 1, "crash": 1, "phantom": 1}),
        12_000,
    ),
    (Turns("what cannot be opened counts", TWO, limit=2, faults={"unopened": 3, "die": 1, "crash": 1}), 10_000),
    (Turns("provider outages spend no attempt", TWO, limit=2, faults={"outage": 2, "raise": 2, "crash": 1}), 10_000),
    (Turns("wakes popped and never started", TWO, pops=True, faults={"crash": 2, "slow": 1}), 12_000),
    (Turns("wakes that are late and get a second one", TWO, faults={"late": 1, "die": 1, "expire": 1}), 12_000),
    (Turns("hand over and drain", (0, 0, 0), turns_per_lease=1, faults={"crash": 1, "stop": 1}), 10_000),
    (
        Turns("no sweep while Redis keeps all", TWO, (0,), sweep=False, faults={"expire": 1, "crash": 1, "reply": 1}),
        15_000,
    ),
    (Turns("pauses and deaths", TWO, faults={"pause": 2, "crash": 1, "die": 1}), 10_000),
    (Turns("a pause, and a zombie", TWO, faults={"pause": 1, "expire": 1}), 20_000),
    (Turns("a pause, flushed", TWO, faults={"pause": 1, "flush": 1}), 25_000),
    (Turns("a pause, and failover to a stale replica", TWO, faults={"pause": 1, "failover": 1}), 40_000),
    (Turns("a pause, without the sweep", TWO, sweep=False, faults={"pause": 2, "crash": 1}), 1_000),
    (Turns("durability = redis", TWO, (0,), journaled=False, faults={"crash": 1, "expire": ANY}), 3_000),
    (
        Turns("durability = redis, flushed", TWO, (0,), journaled=False, faults={"flush": 1, "crash": 1, "expire": 1}),
        12_000,
    ),
    (Turns("durability = redis, failover", TWO, (0,), journaled=False, faults={"failover": 1, "crash": 1}), 4_000),
]

DELIVERIES = [
    (Deliveries("deaths between send and mark", faults={"crash": 2, "die": 1}, max_attempts=2), 8_000),
    (Deliveries("zombies that still send", faults={"expire": 2}), 60_000),
    (
        Deliveries("zombies at one part", rows=1, max_attempts=2, faults={"expire": ANY, "crash": 1, "unclear": 1}),
        30_000,
    ),
    (
        Deliveries("told to wait", rows=1, max_attempts=2, faults={"busy": 2, "transient": 2, "expire": 1, "crash": 1}),
        10_000,
    ),
    (Deliveries("never send an ambiguous part again", resend=False, faults={"expire": 2, "refused": 1}), 140_000),
    (Deliveries("no answer, policy: leave it", resend=False, faults={"unclear": 1, "crash": 1, "transient": 1}), 8_000),
    (Deliveries("idempotent platform, FLUSHALL", idempotent=True, max_attempts=2, faults={"flush": 1}), 9_000),
    (Deliveries("deliveries after a failover to a stale replica", max_attempts=2, faults={"failover": 1}), 12_000),
    (Deliveries("a part that kills its worker", poison=True, faults={"crash": 1}), 1_500),
]

CONTROL = [
    (Control("control: redelivery, deaths and a zombie", 2, (0,), faults={"crash": 1, "die": 1, "expire": 1}), 37_000),
    (Control("control: leases that run out at any instant", faults={"expire": ANY, "crash": 1, "reply": 1}), 29_000),
    (Control("control: FLUSHALL and zombies", faults={"flush": 1, "expire": 1, "die": 1}), 33_000),
    (Control("control: failover to a stale replica", faults={"failover": 1, "crash": 1}), 17_000),
    (
        Control("control: no sweep while Redis keeps all", sweep=False, faults={"expire": 1, "crash": 1, "reply": 1}),
        2_600,
    ),
    (Control("control: durability = redis", 2, (0,), journaled=False, faults={"crash": 1, "expire": ANY}), 1_000),
    (Control("control: durability = redis, flushed", journaled=False, faults={"flush": 1, "expire": 1}), 500),
]

DRAINING = [
    (Draining("drained, and a death", faults={"drain": 1, "crash": 1}), 8_000),
    (Draining("drained, and a receiver that knows it late", faults={"drain": 1, "unaware": 1, "crash": 1}), 30_000),
    (Draining("drained, and a zombie", faults={"drain": 1, "expire": 1}), 35_000),
    (Draining("drained, and a move that is cut short", faults={"drain": 1, "crash": 1, "cut": 1}), 20_000),
    (Draining("drained, three messages", 3, faults={"drain": 1}), 50_000),
    (Draining("drained, durability = redis", 3, journaled=False, faults={"drain": 1}), 3_000),
    (
        Draining("drained, durability = redis, cut short", journaled=False, faults={"drain": 1, "crash": 1, "cut": 1}),
        8_000,
    ),
]

MUTANTS: list[Turns | Deliveries | Control | Draining] = [
    Draining("the new server does not wait", faults={"drain": 1}),
    Draining("mail leaves before it has arrived", journaled=False, faults={"drain": 1, "crash": 1, "cut": 1}),
    Turns("no version check", (0,), faults={"expire": 1}),
    Turns("acknowledge before commit", (0,), journaled=False, faults={"crash": 1}),
    Turns("no unique event id", (0,), (0,)),
    Turns("no gap check", TWO),
    Turns("acknowledge by count", TWO, sweep=False),
    Turns("acknowledge without token check", TWO, faults={"expire": 1}),
    Turns("no housekeeper", (0,), faults={"die": 1}),
    Turns("idle in two steps", TWO, sweep=False),
    Turns("a resume wakes nobody", (0,), faults={"pause": 1}),
    Turns("wake dedupe by RQ state", TWO, sweep=False),
    Turns("outbox row before commit", (0,), faults={"expire": 1}),
    Turns("rewrite without compare-and-set", (0,), rewrites=1),
    Turns("attempts counted after the turn", (0,), limit=2, poison="crash"),
    Turns("one count of attempts for the whole key", TWO, limit=2, faults={"die": 1, "crash": 1, "raise": 1}),
    Turns("known mail acknowledged by its head", TWO, sweep=False, faults={"reply": 1}),
    Turns("no session lock", (0, 1), joined=True),
    Turns("no look for leases from before", (0, 1), joined=True),
    Control("message ended without a look at its row", 1, faults={"expire": 1}),
    Control("answer added before the row is compared", 1, faults={"crash": 1}),
    Control("messages run as the mailbox has them"),
    Control("found ended, acknowledged by its head", sweep=False, faults={"expire": 1}),
    Control("route left behind", 1),
    Control("no housekeeper", 1, faults={"die": 1}),
    Deliveries("sent mark before send", rows=1, faults={"crash": 1}),
    Deliveries("no sending mark", rows=1, faults={"crash": 1}),
    Deliveries("no housekeeper", rows=1, faults={"die": 1}),
    Deliveries("going on past a part that another sends", faults={"expire": 1}),
    Deliveries("dead letter without looking at the row", rows=1, resend=False, faults={"expire": 1, "refused": 1}),
    Deliveries("unclear sends always repeated", rows=1, resend=False, faults={"unclear": 1}),
    Deliveries("a young attempt taken over at once", faults={"flush": 1}),
    Deliveries("attempts checked only after an error", rows=1, poison=True),
]

SEEN_AS = {
    "crash": " dies",
    "die": " dies between ",
    "expire": "runs out while it works",
    "flush": "FLUSHALL",
    "failover": "failover to the stale replica",
    "tail": "loses the tail",
    "raise": "the agent fails",
    "reply": "hear nothing",
    "slow": "whose worker is slow",
    "late": "whose wake is late",
    "stop": "told to stop",
    "phantom": "a renewal under way",
    "unopened": "cannot be opened",
    "outage": "the provider is away",
    "pause": "an operator pauses",
    "drain": "drains the old server",
    "unaware": "does not know yet",
    "cut": "dies in a move",
    "transient": "did not go out",
    "busy": "told to wait",
    "unclear": "no answer comes",
    "refused": ": refused",
}


def _named(
    models: list[tuple[Turns, int]]
    | list[tuple[Deliveries, int]]
    | list[tuple[Control, int]]
    | list[tuple[Draining, int]],
) -> list[object]:
    return [pytest.param(model, least, id=model.name) for model, least in models]


def _walk(model: Model) -> Walk:
    walk = explore(model)
    print(f"\n{walk.states:7,} states {walk.steps:9,} steps  {model.name}")
    return walk


@pytest.mark.parametrize(("model", "least"), _named(TURNS) + _named(DELIVERIES) + _named(CONTROL) + _named(DRAINING))
def test_every_promise_holds_in_every_reachable_state(
    model: Turns | Deliveries | Control | Draining, least: int
) -> None:
    walk = _walk(model)
    assert walk.violation is None, f"\n{walk.violation}"
    assert walk.states >= least, "this configuration explores less than it did: was that meant?"
    never = [name for name in model.faults if not any(SEEN_AS[name] in label for label in walk.faults)]
    assert not never, f"these faults never happened: {never}"


@pytest.mark.parametrize("intact", [pytest.param(m, id=f"{type(m).__name__.lower()}: {m.name}") for m in MUTANTS])
def test_without_this_protection_a_promise_breaks(intact: Turns | Deliveries | Control | Draining) -> None:
    assert explore(intact).violation is None, "the bounds must be sound with the protection"
    violation = explore(replace(intact, mutant=intact.name)).violation
    assert violation is not None, f"{intact.name}: nobody would notice"
    print(f"\n{violation}")


def test_a_violation_is_shown_as_its_steps() -> None:
    violation = explore(Turns("no gap check", TWO, mutant="no gap check")).violation
    assert str(violation).splitlines() == [
        "no gap check: I2: a later message ended before an earlier one of its key",
        "   1 receiver 0: journal m0 as seq 1",
        "   2 receiver 1: journal m1 as seq 2",
        "   3 receiver 1: mailbox + wake for m1 (seq 2)",
        "   4 worker 0: start the wake of key 0: leased, with seq 2",
        "   5 worker 0: load: version 0, done up to 0",
        "   6 worker 0: commit m1 on version 0",
    ]
