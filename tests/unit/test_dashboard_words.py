"""What the dashboard says in words: the verdict, why a conversation waits, how a search is read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from keyturn.cli.status import numbers
from keyturn.dashboard.chart import chart
from keyturn.dashboard.render import duration
from shared.errors import CannotDo
from shared.pause_scope import parse_scope
from shared.reading.conversation_query import ConversationQuery, parse_query
from shared.reading.keys import KeyPhase, KeyState
from shared.reading.overview import BOUND, BoundedCount, DelayedTurns, LaneNow, Overview, StoredNow
from shared.reading.status import status_of
from shared.reading.verdict import Mood, verdict
from shared.reading.waiting_reason import waiting_reason
from shared.reading.workers import LaneSlots, WorkerState
from shared.store.usage import SpentInAll

NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)
WORKER = WorkerState("w", "busy", 1, 50, 0, (), NOW, 0.5)
SUSPENDED = WorkerState("w", "suspended", 0, 50, 0, (), NOW, 0.5)
FOR_TURNS = WorkerState("w", "idle", 0, 50, 0, (), NOW, 0.5, (LaneSlots("turns", 0, 50),))
SILENT = WorkerState("w", "busy", 1, 50, 0, (), NOW, 40.0)
NOTHING = BoundedCount(0)


def seen(
    *,
    ready: int = 0,
    unsent: int = 0,  # chats
    waited: float = 0,
    running: int = 0,
    workers: tuple[WorkerState, ...] = (WORKER,),
    redis_away: int = 0,
    overdue: int = 0,
    dead: int = 0,
    messages: int = 0,
    pauses: int = 0,
    stored: bool = True,
    age: float = 0,
    servers: int = 1,
    journaled: bool = True,
    delayed: DelayedTurns | None = None,
    no_housekeeper: str | None = None,
) -> Overview:
    at = NOW - timedelta(seconds=age)
    turns = LaneNow("turns", ready, at - timedelta(seconds=waited) if ready else None, running, 0)
    rows = StoredNow(
        BoundedCount(messages), NOTHING, BoundedCount(dead), 0, SpentInAll(), (parse_scope("all"),) * pauses
    )
    return Overview(
        at,
        (turns, LaneNow("deliveries", unsent, at - timedelta(seconds=waited) if unsent else None, 0, 0)),
        workers,
        redis_away,
        overdue,
        rows if stored else None,
        redis_servers=servers,
        journaled=journaled,
        delayed=delayed,
        no_housekeeper=no_housekeeper,
    )


def later(keys: int, *, away: float | None = None, failed: bool = False) -> DelayedTurns:
    """Keys that wait for their next attempt, the first of them for 3 s."""
    since = NOW - timedelta(seconds=away) if away is not None else None
    return DelayedTurns(keys, NOW + timedelta(seconds=3), since, failed)


@pytest.mark.parametrize(
    ("overview", "mood", "text"),
    [
        (seen(), Mood.GOOD, "All is well. No turn runs, and nobody waits for a worker."),
        (seen(running=1), Mood.GOOD, "All is well. 1 turn runs"),
        (seen(ready=3, waited=1), Mood.GOOD, "All is well. No turn runs, and nobody waits long for a worker."),
        (seen(unsent=3, waited=1), Mood.GOOD, "All is well. No turn runs, and nobody waits long for a worker."),
        (seen(unsent=1, waited=9), Mood.WARN, "1 chat with replies waits for a worker, the oldest 9 s: add workers."),
        (
            seen(unsent=3, waited=9, workers=(FOR_TURNS,)),
            Mood.BAD,
            "3 chats with replies wait for a worker, the oldest 9 s, and no worker that is alive serves deliveries: start",
        ),
        (seen(workers=(SUSPENDED,)), Mood.WARN, "`rq suspend` holds all workers back: `rq resume` lets them go on."),
        (
            seen(ready=2, waited=9, workers=(SUSPENDED,)),
            Mood.WARN,
            "`rq suspend` holds all workers back, and 2 conversations wait: `rq resume`",
        ),
        (seen(ready=12, waited=41), Mood.WARN, "12 conversations wait for a worker, the oldest 41 s: add workers."),
        (seen(ready=1, waited=9, workers=()), Mood.BAD, "No worker is alive, and 1 conversation waits: start"),
        (seen(workers=(SILENT,)), Mood.BAD, "No worker is alive: start `keyturn work`."),
        (seen(overdue=2), Mood.BAD, "2 keys are overdue and nobody looks after them: start `keyturn housekeep`."),
        (
            seen(delayed=later(3, away=41, failed=True), dead=1),
            Mood.WARN,
            "3 conversations wait for their next attempt: the provider of their model has not answered for 41 s, as `keyturn logs` "
            "says. The first begins in 3 s.",
        ),
        (
            seen(delayed=later(1, failed=True)),
            Mood.WARN,
            "1 conversation waits for its next attempt: its last attempt failed, as `keyturn logs` says. It begins in 3 s.",
        ),
        (
            seen(delayed=later(2)),
            Mood.WARN,
            "2 conversations wait for their next attempt: a limit is reached, or what they need is away. The first begins",
        ),
        (
            seen(no_housekeeper="No housekeeper has run for 30 s", pauses=1),
            Mood.WARN,
            "No housekeeper has run for 30 s: what a crash leaves behind stays there. Start `keyturn housekeep`.",
        ),
        (seen(pauses=1, dead=1), Mood.WARN, "A pause is in force, and nothing waits behind it."),
        (seen(dead=1), Mood.WARN, "1 dead letter waits for a decision"),
        (seen(dead=BOUND + 1), Mood.WARN, "More than 10,000 dead letters wait for a decision"),
        (seen(redis_away=1, dead=3), Mood.BAD, "Redis does not answer."),
        (seen(stored=False), Mood.BAD, "The database does not answer."),
        (seen(stored=False, redis_away=1), Mood.BAD, "Redis and the database do not answer."),
        (seen(age=20), Mood.BAD, "These numbers are 20 s old."),
    ],
)
def test_the_verdict_names_the_worst_that_is_true(overview: Overview, mood: Mood, text: str) -> None:
    said = verdict(overview, NOW)
    assert said.mood is mood and said.text.startswith(text)


@pytest.mark.parametrize(
    ("overview", "text"),
    [
        (
            seen(redis_away=1),
            "Redis does not answer. New messages are kept in the journal; they wait, and nothing is lost.",
        ),
        (
            seen(redis_away=1, servers=3),
            "1 of 3 Redis servers does not answer. New messages are kept in the journal; those of conversations there wait, "
            "and nothing is lost.",
        ),
        (
            seen(redis_away=1, journaled=False),
            "Redis does not answer. New messages are refused with 503 until it is back.",
        ),
        (
            seen(redis_away=2, servers=3, journaled=False),
            "2 of 3 Redis servers do not answer. New messages of conversations there are refused with 503 until they are back.",
        ),
        (
            seen(stored=False, journaled=False),
            "The database does not answer. New messages wait in Redis, and finished turns in memory.",
        ),
        (
            seen(stored=False, redis_away=1, servers=3, journaled=False),
            "1 of 3 Redis servers and the database do not answer. Some new messages are refused until they are back.",
        ),
    ],
)
def test_the_verdict_says_what_a_store_that_is_away_means_for_new_messages(overview: Overview, text: str) -> None:
    """With DURABILITY=redis, Redis takes messages in, and not the journal."""
    assert verdict(overview, NOW).text == text


@pytest.mark.parametrize(
    ("overview", "behind"),
    [
        (seen(ready=2, running=1, messages=7), 4),
        (seen(ready=2, running=1, messages=2), 0),
        (seen(ready=2, messages=BOUND + 1), None),
        (seen(ready=2, messages=7, redis_away=1, servers=3), None),
        (seen(stored=False), None),
    ],
)
def test_how_many_wait_for_their_own_conversation_is_said_where_it_is_known(
    overview: Overview, behind: int | None
) -> None:
    assert overview.behind == behind


def test_while_some_redis_servers_are_away_numbers_are_said_to_be_the_least() -> None:
    found = status_of(seen(ready=2, running=1, redis_away=1, servers=3), NOW)
    printed = numbers(found)
    assert printed["wait for a worker"].startswith("at least 2, ") and printed["workers"] == "at least 1 alive"
    assert printed["turns running"] == "at least 1 of 50 slots"


def test_a_wait_is_never_shorter_than_nothing_where_clocks_differ() -> None:
    assert seen(ready=1, waited=-3).ready_seconds == 0


def test_a_count_beyond_its_bound_is_not_given_as_exact() -> None:
    assert (BoundedCount(BOUND).text, BoundedCount(BOUND + 1).text) == ("10,000", "more than 10,000")


@pytest.mark.parametrize(
    ("state", "pending", "alive", "text"),
    [
        (KeyState("turns", "k", KeyPhase.IDLE, 0), 0, 1, "Nothing waits here."),
        (KeyState("turns", "k", KeyPhase.IDLE, 0), 2, 1, "The journal has 2 messages that Redis does not know of."),
        (KeyState("turns", "k", KeyPhase.AWAKE, 1), 1, 1, "It is ready and waits for a free worker."),
        (KeyState("turns", "k", KeyPhase.AWAKE, 1), 1, 0, "It is ready, and no worker is alive"),
        (
            KeyState("turns", "k", KeyPhase.DELAYED, 1, 2, None, 12_000),
            1,
            1,
            "Attempt 2 failed. The next one begins in 12 s.",
        ),
        (
            KeyState("deliveries", "to:irc:1", KeyPhase.DELAYED, 1, 0, None, 12_000),
            0,
            1,
            "It was asked to wait: a limit is reached, or what it needs is away. No attempt failed. It goes on in 12 s.",
        ),
        (KeyState("turns", "k", KeyPhase.LEASED, 1, 1, None, 9000), 1, 1, "A worker runs its turn, attempt 1."),
        (
            KeyState("turns", "k", KeyPhase.LEASED, 3, 1, None, 9000),
            3,
            1,
            "A worker runs its turn, attempt 1. 2 messages wait",
        ),
        (
            KeyState("turns", "k", KeyPhase.LEASED, 1, 1, None, -7000),
            1,
            1,
            "Its worker has not been heard of: the lease ran out 7",
        ),
    ],
)
def test_a_conversation_says_why_it_waits_in_words(state: KeyState, pending: int, alive: int, text: str) -> None:
    assert waiting_reason(state, pending, alive).startswith(text)


def test_a_search_is_read_as_it_is_written() -> None:
    assert parse_query("platform:api state:delayed age>30s attempts>1 user:42 key:dm") == ConversationQuery(
        "api", KeyPhase.DELAYED, timedelta(seconds=30), 1, "42", ("dm",)
    )
    assert parse_query("agent:main:webhook:dm:c1").words == ("agent:main:webhook:dm:c1",)
    assert parse_query("age>2h").older_than == timedelta(hours=2)
    assert parse_query("") == ConversationQuery()


@pytest.mark.parametrize("text", ["state:asleep", "age>soon", "age>", "attempts>-1", "colour:red", "size>3"])
def test_a_search_that_cannot_be_read_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(CannotDo):
        parse_query(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.4, "0.4 s"),
        (41, "41 s"),
        (60, "1 min"),
        (125, "2 min 5 s"),
        (7300, "2 h 1 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_time_span_is_said_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_chart_stays_in_its_box_and_says_its_numbers() -> None:
    drawn = chart([0, 5, 10], "Turns")
    assert drawn is not None and drawn.points == "0.0,42.0 120.0,23.0 240.0,4.0"
    assert drawn.title == "Turns: now 10, at most 10"
    assert chart([1], "Turns") is None


def test_a_chart_takes_what_nobody_could_tell_for_no_zero() -> None:
    drawn = chart([10, None, 10, None], "Turns")
    assert drawn is not None and drawn.points == "0.0,4.0 160.0,4.0"
    assert drawn.title == "Turns: now not known, at most 10"
    assert chart([None, 1, None], "Turns") is None
