"""What is done for one conversation, person or platform leaves the rows of every other as they are, and answers about it alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from shared.messages import Mail, Part, Reply, Session, State
from shared.store import Store
from shared.store.change import Change, Commit, Ending
from shared.store.control import ControlCommit
from shared.store.database import Row
from shared.store.memory import Due, Quiet
from shared.store.pairing import Approved, CodeAnswer, CodeRefusal, PairingPerson
from shared.store.pairing_code import Code
from shared.store.parts import PartRow, parts_of
from shared.store.usage import Whose
from tests.store.books import accept, ask, commit, load, mail, proof, write
from tests.support.pipe import an_inbound, control_key, key_of

OTHER = "bystander"  # in every row that nobody may touch
TABLES = (
    *("inbox", "routes", "sessions", "messages", "turns", "outbox", "dead", "facts"),
    *("flushes", "notes", "usage", "paired", "pairing_requests"),
)
DAY = "2026-11-17"


async def theirs(store: Store) -> dict[str, list[Row]]:
    """All rows of the bystander."""
    found = {table: await ask(store, f"SELECT * FROM {table}") for table in TABLES}
    return {table: sorted([row for row in rows if OTHER in str(row)], key=str) for table, rows in found.items()}


def part_for(person: PairingPerson, code: Code, text: str) -> PartRow:
    letter = [Mail(0, an_inbound(platform=person.platform, chat=person.user_id))]
    key = f"agent:main:{person.platform}:dm:{person.user_id}"
    return parts_of(letter, [Reply(text)], turn_id=code.turn_id, session_key=key, now=1)[1][0]


async def asks(store: Store, platform: str, user: str, alt: str | None = None) -> tuple[CodeAnswer, str]:
    person, code = PairingPerson(platform, user, alt, user), Code.fresh()
    answered, _ = await store.pairings.ask(
        person, code, part_for(person, code, code.plain), part_for(person, code, "later")
    )
    return answered, code.plain


async def lives(store: Store, chat: str, platform: str) -> Session:
    """A life with a row in every table: turns, mail that waits, replies in every state, notes, costs, and people."""
    session = await load(store, key_of(chat))
    for n in (1, 2):
        letter = await mail(store, f"{chat} says {n}", chat=chat)
        session = (await commit(store, session, letter, replies=(f"{chat} hears {n}", f"{chat} hears more"))).session
    to = f"to:webhook:{chat}"
    buried, sending, *_ = await store.outbox.open_parts(to, 10)
    assert await store.outbox.sending(buried, f"lease {chat}")
    await store.outbox.bury(buried, "refused", f"{chat} is away")
    assert await store.outbox.sending(sending, f"lease {chat}")
    for text in ("waits", "waits behind"):
        await mail(store, f"{chat} {text}", chat=chat)
    control = an_inbound("/stop", chat=chat)
    await accept(store, control, key=control_key(key_of(chat)))
    for name in ("one", "two"):
        await write(store, "INSERT INTO facts VALUES (:id, :name, :value)", id=session.id, name=name, value=chat)
    await write(
        store, "INSERT INTO notes (owner, text, session_id, created_at) VALUES (:owner, 'tea', 's', 1)", owner=chat
    )
    await store.memory.queue([Quiet(session.id, key_of(chat), 5)])
    usage = {"model": chat, "input": 3, "output": 2, "total": 5, "requests": 1}
    await store.usage.aside(usage, Whose(session.id, chat, "main"), DAY)
    answered, code = await asks(store, platform, f"{chat}-paired")
    assert answered is CodeAnswer.CODE
    assert isinstance(await store.pairings.approve(platform, code, f"cli {chat}"), Approved)
    assert (await asks(store, platform, f"{chat}-waits"))[0] is CodeAnswer.CODE
    return session


@pytest.fixture
async def mine(store: Store) -> Session:
    """My session, beside that of the bystander, who lives on another platform."""
    await lives(store, OTHER, "signal")
    return await lives(store, "c1", "telegram")


async def parts(store: Store) -> list[Part]:
    return await store.outbox.open_parts("to:webhook:c1", 10)


async def take(store: Store, session: Session) -> None:
    first = (await parts(store))[0]
    assert first.sending and await store.outbox.take("to:webhook:c1", "another lease") is None
    taken = await store.outbox.take("to:webhook:c1", "lease c1")
    assert taken is not None and taken.id == first.id
    await store.outbox.failed(taken, "no", asked_to_wait=True)
    assert [part.sending for part in await parts(store)] == [False] * 3


async def send(store: Store, session: Session) -> None:
    for part in await parts(store):
        await store.outbox.sending(part, "lease")
        await store.outbox.ambiguous(part)
        await store.outbox.sent(part, "receipt")
    assert await parts(store) == []


async def fail(store: Store, session: Session) -> None:
    for part in await parts(store):
        await store.outbox.failed(part, "no", asked_to_wait=True)
        await store.outbox.bury(part, "unreachable", "no")
    assert await parts(store) == []


async def replay(store: Store, session: Session) -> None:
    [letter] = [row for row in await store.dead.all(state="open", limit=10) if row["session_key"] == key_of()]
    again, destination = await store.dead.send_again(letter["id"], int(letter["ref"]))
    assert again and destination == "to:webhook:c1"


async def drop_letters(store: Store, session: Session) -> None:
    [letter] = [row for row in await store.dead.all(state="open", limit=10) if row["session_key"] == key_of()]
    assert await store.dead.close(letter["id"], "dropped") and not await store.dead.close(letter["id"], "dropped")


async def answer(store: Store, session: Session) -> None:
    session = await load(store)
    [first, *_] = await store.journal.pending(key_of(), after=session.done_seq, limit=10)
    inbound = an_inbound("c1 waits", event_id="unused")
    row = await store.journal.find(first.id)
    assert row is not None
    change = Change("a title", 1, "ses_next", "session_reset", None, {(session.id, "one"): None})
    letter = Mail(first.seq, an_inbound("c1 waits", event_id=row["event_id"]))
    assert letter.inbound.id == first.id and inbound.id != first.id
    await store.commit(
        Commit(session, key_of(), proof(), [letter], ending=Ending(State.DEAD, "no", "no"), change=change)
    )


async def count(store: Store, session: Session) -> None:
    for row in await store.journal.pending(key_of(), after=0, limit=10):
        await store.journal.count_attempt(row.id, 2, "no")
        await store.journal.note_outage(row.id, 5, "away")
    counted = await store.journal.pending(key_of(), after=0, limit=10)
    assert [row.attempts for row in counted] == [2, 2] and all(row.outage_ms is not None for row in counted)


async def reject(store: Store, session: Session) -> None:
    rows = await store.journal.pending(key_of(), after=0, limit=10)
    found = await store.journal.find(rows[1].id)
    assert found is not None
    letter = Mail(rows[1].seq, an_inbound("x", event_id=found["event_id"]))
    rejected = await store.reject_waiting(key_of(), letter, (Reply("dropped"),), "operator")
    assert rejected is not None and rejected.destination == "to:webhook:c1" and len(rejected.outbox) == 1


async def control(store: Store, session: Session) -> None:
    key = control_key(key_of())
    [row] = await store.journal.pending(key, after=0, limit=10)
    found = await store.journal.find(row.id)
    assert found is not None
    letter = Mail(row.seq, an_inbound("/stop", event_id=found["event_id"]))
    await store.commit_control(ControlCommit(key, letter, 1, (Reply("no"),), Ending(State.DEAD, "no", "no")))
    route = await store.journal.route(key)
    assert route is not None and route["done_seq"] == 1


async def remember(store: Store, session: Session) -> None:
    [due] = [one for one in await store.memory.due(2**53, 10) if one.session_id == session.id]
    assert await store.memory.put_off(due, 99) and not await store.memory.put_off(due, 100)
    assert await store.memory.begin(session.id, "t1") == 1
    await store.memory.failed(session.id, "t1", 98)
    assert await store.memory.begin(session.id, "t2") == 2
    standing = await store.memory.standing(session.id)
    assert standing is not None
    assert await store.memory.done(session.id, "t2", standing, "c1", ("cake",))
    assert [note.text for note in await store.memory.of("c1", 10)] == ["tea", "cake"]


async def close_memory(store: Store, session: Session) -> None:
    standing = await store.memory.standing(session.id)
    assert standing is not None
    await store.memory.close(session.id, standing, "nothing", standing.message_count)
    assert await store.memory.standing(session.id) is None
    assert not await store.memory.put_off(Due(session.id, key_of(), 5), 9)


async def spend(store: Store, session: Session) -> None:
    usage = {"model": "c1", "input": 1, "output": 1, "total": 2, "requests": 1}
    await store.usage.aside(usage, Whose(session.id, "c1", "main"), DAY)
    spent, _ = await store.usage.of_session(session.id)
    assert (spent.total, spent.requests) == (7, 2)
    assert (await store.usage.of_owner("c1")).total == 7 and (await store.usage.of_owner("c1", "2026-11-18")).total == 0
    assert (await store.usage.of_all(DAY)).total == 12


async def title(store: Store, session: Session) -> None:
    assert await store.titles.suggest(session.id, "mine") and not await store.titles.suggest(session.id, "again")


async def pair(store: Store, session: Session) -> None:
    answered, code = await asks(store, "telegram", "c2", "c2-alt")
    assert answered is CodeAnswer.CODE
    assert await store.pairings.approve("signal", code, "cli") is CodeRefusal.WRONG
    assert await store.pairings.approve("telegram", code, "cli") == Approved("c2", "c2")
    assert await store.pairings.revoke("telegram", "c2-alt") and not await store.pairings.revoke("telegram", "c2")
    assert not await store.pairings.revoke("telegram", f"{OTHER}-paired")
    assert await store.pairings.is_approved(PairingPerson("signal", f"{OTHER}-paired", None, ""))
    assert not await store.pairings.is_approved(PairingPerson("telegram", f"{OTHER}-paired", None, ""))


async def lock(store: Store, session: Session) -> None:
    for _ in range(5):
        await store.pairings.approve("telegram", "AAAAAAAA", "cli")
    assert await store.pairings.approve("telegram", "AAAAAAAA", "cli") is CodeRefusal.LOCKED
    assert (await asks(store, "telegram", "c3"))[0] is CodeAnswer.SILENCE


async def delete(store: Store, session: Session) -> None:
    now = await load(store)
    assert await store.delete(now.id, now.version)
    assert await ask(store, "SELECT * FROM messages WHERE session_id = :id", id=now.id) == []


Deed = Callable[[Store, Session], Awaitable[None]]
DEEDS: dict[str, Deed] = {
    "a part is taken": take,
    "parts are sent": send,
    "parts fail and are buried": fail,
    "a reply is sent again": replay,
    "a dead letter is dropped": drop_letters,
    "a message is answered and its session ends": answer,
    "attempts and outages are counted": count,
    "a message is rejected": reject,
    "a control message ends": control,
    "a session is looked through": remember,
    "a look is closed": close_memory,
    "a question is paid for": spend,
    "a session gets a title": title,
    "a person is let in and shown out": pair,
    "a platform is locked": lock,
    "a session is deleted": delete,
}


@pytest.mark.parametrize("deed", DEEDS)
async def test_what_is_done_for_one_leaves_every_other_alone(store: Store, mine: Session, deed: str) -> None:
    before = await theirs(store)
    assert all(before.values()), "every table has a row of theirs"
    await DEEDS[deed](store, mine)
    assert await theirs(store) == before


async def test_a_question_about_one_is_not_answered_with_another(store: Store, mine: Session) -> None:
    answers: list[Any] = [
        await parts(store),
        await store.outbox.unsent("to:webhook:c1", 10),
        await store.outbox.of_session(key_of(), after=0),
        await store.journal.pending(key_of(), after=0, limit=10),
        await store.journal.route(key_of()),
        await store.memory.of("c1", 10),
        await store.memory.rows(mine.id, 0, 10),
        await store.sessions.messages(mine.id, 10),
        await store.facts.of(mine.id),
        (await load(store)).history,
    ]
    assert all(answers) and OTHER not in str(answers)
    route = await store.journal.route(key_of())
    assert route is not None and (route["last_seq"], route["done_seq"], route["pending"]) == (4, 2, 2)


async def test_what_waits_is_listed_for_all_in_order(store: Store, mine: Session) -> None:
    keys = await store.journal.waiting_keys(after="", limit=10)
    assert keys == sorted([key_of(), key_of(OTHER), control_key(key_of()), control_key(key_of(OTHER))])
    assert await store.journal.waiting_keys(after=keys[0], limit=2) == keys[1:3]
    destinations = [name for name, _ in await store.outbox.waiting_destinations(after="", limit=10)]
    assert {"to:webhook:c1", f"to:webhook:{OTHER}"} <= {*destinations} and destinations == sorted(destinations)
