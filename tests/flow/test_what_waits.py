"""What /stop, /status and /queue say of the messages that wait, of the turn that runs, and of what is done in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from shared.clock import now_ms
from shared.door import accept
from shared.lane import Lease
from shared.mail import TakeNotes, encode_mail
from shared.messages import Media
from shared.pipeline import open_pipeline
from shared.settings import Settings
from tests.store.books import ask
from tests.support.pipe import Rig, an_inbound, control_key, key_of
from tests.support.servers import Databases
from workers.commands.queue import SHOWN, SHOWN_CHARACTERS

QUEUE = "Mode queue: each message waits for a turn of its own."


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


async def told(rig: Rig, text: str) -> str:
    """What the chat is told when somebody says this beside the conversation."""
    await asyncio.sleep(0.002)  # wall clocks have milliseconds: this is said after what waits
    accepted = await rig.accept(text)
    _, lease = await rig.start(rig.pipe.control, control_key(key_of()))
    assert lease is not None
    await rig.turns(lease)
    row = await rig.pipe.store.journal.find(accepted.id)
    assert row is not None
    parts = await ask(rig.pipe.store, "SELECT id FROM outbox WHERE turn_id = :id", id=row["turn_id"])
    ids = {part["id"] for part in parts}
    return "".join(
        part.text for part in await rig.pipe.store.outbox.open_parts("to:webhook:c1", 1000) if part.id in ids
    )


async def lined_up(rig: Rig, running: bool, waiting: int) -> Lease | None:
    """So many messages, the first of which a worker runs."""
    for n in range(waiting + running):
        await rig.accept(f"message {n}")
    return await rig.lease() if running else None


@pytest.mark.parametrize(
    ("running", "waiting", "tasks", "said"),
    [
        (False, 0, 0, "Nothing is running."),
        (False, 1, 0, "Nothing was running. I dropped 1 message that waited."),
        (False, 2, 0, "Nothing was running. I dropped 2 messages that waited."),
        (True, 0, 0, "Stopped: 1 message."),
        (True, 1, 0, "Stopped: 2 messages, 1 of which waited."),
        (True, 2, 0, "Stopped: 3 messages, 2 of which waited."),
        (False, 0, 1, "Stopped: 1 background task."),
        (False, 0, 2, "Stopped: 2 background tasks."),
        (False, 2, 1, "Nothing was running. I dropped 2 messages that waited. I stopped 1 background task."),
        (True, 1, 2, "Stopped: 2 messages, 1 of which waited. I stopped 2 background tasks."),
    ],
)
async def test_stop_says_what_it_ended(rig: Rig, running: bool, waiting: int, tasks: int, said: str) -> None:
    await lined_up(rig, running, waiting)
    for n in range(tasks):
        await told(rig, f"/background look for {n}")
    assert await told(rig, "/stop") == said


async def test_stop_counts_neither_what_was_said_after_it_nor_what_nobody_said_nor_what_cannot_be_read(
    rig: Rig,
) -> None:
    lane = rig.pipe.turns
    await lane.put(key_of(), 0, b"garbage")
    await lane.put(key_of(), 0, encode_mail(TakeNotes("ses_1")))
    assert await told(rig, "/stop") == "Nothing is running."
    await accept(rig.pipe, replace(an_inbound("later"), received_at=now_ms() + 60_000))
    await rig.accept("before")
    assert await told(rig, "/stop") == "Nothing was running. I dropped 1 message that waited."


@pytest.mark.parametrize(
    ("running", "waiting", "line"),
    [(False, 0, ""), (False, 2, "2 waiting"), (True, 0, "; 0 more waiting"), (True, 2, "; 2 more waiting")],
)
async def test_status_says_what_runs_and_how_many_wait_for_it(rig: Rig, running: bool, waiting: int, line: str) -> None:
    assert await told(rig, "/status") == "Nothing has been said here yet."
    await rig.accept("hello")
    await rig.run_turns()
    await lined_up(rig, running, waiting)
    session, since, rows, *more = (await told(rig, "/status")).splitlines()
    known = await rig.pipe.store.sessions.find(key_of())
    assert known is not None and session == f"Session {known['id']}" and rows == "2 rows"
    assert since.startswith("since 2") and ", last activity 2" in since
    assert (more[0].endswith(line), more[0].startswith("Working since 2")) == (True, running) if line else more == []


async def test_queue_shows_the_first_of_what_waits_and_how_many_more_there_are(rig: Rig) -> None:
    assert await told(rig, "/queue") == f"{QUEUE}\nNothing waits."
    await rig.accept("running")
    await rig.lease()
    assert await told(rig, "/queue") == f"{QUEUE}\nNothing waits."
    exactly, longer = "x" * SHOWN_CHARACTERS, "y" * (SHOWN_CHARACTERS + 1)
    await rig.accept("one\n  and   more")
    assert await told(rig, "/queue") == f"{QUEUE}\n1 message waits:\n1. one and more"
    await rig.accept(exactly)
    await rig.accept(longer)
    await accept(rig.pipe, replace(an_inbound(""), media=(Media("https://a/1.png"),)))
    for n in range(SHOWN - 3):
        await rig.accept(f"message {n}")
    lines = (await told(rig, "/queue")).splitlines()
    assert lines[1:6] == [
        f"{SHOWN + 1} messages wait:",
        "1. one and more",
        f"2. {exactly}",
        f"3. {longer[: SHOWN_CHARACTERS - 1]}…",
        "4. (a file)",
    ]
    assert lines[-2:] == [f"{SHOWN}. message {SHOWN - 5}", "and 1 more"]


async def test_queue_counts_what_a_turn_answers_together_as_running(rig: Rig) -> None:
    """While nothing runs, everything waits."""
    photos = [replace(an_inbound(f"photo {n}"), album="a1") for n in range(2)]
    for inbound in (*photos, an_inbound("behind")):
        await accept(rig.pipe, inbound)
    assert (await told(rig, "/queue")).splitlines()[1:] == [
        "3 messages wait:",
        "1. photo 0",
        "2. photo 1",
        "3. behind",
    ]
    await rig.lease()
    assert (await told(rig, "/queue")).splitlines()[1:] == ["1 message waits:", "1. behind"]


async def test_queue_shows_that_something_waits_that_is_no_message_here(
    make_settings: Callable[..., Settings],
) -> None:
    async with open_pipeline(make_settings(durability="redis")) as pipe:
        rig = Rig(pipe)
        await pipe.turns.put(key_of(), 0, b"garbage")
        await pipe.turns.put(key_of(), 0, encode_mail(TakeNotes("ses_1")))
        await pipe.turns.put(key_of(), 0, encode_mail(an_inbound("hello")))
        assert (await told(rig, "/queue")).splitlines()[1:] == [
            "3 messages wait:",
            "1. (cannot be read here)",
            "2. (not from a person)",
            "3. hello",
        ]
