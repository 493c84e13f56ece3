"""Pairing in the database: codes, their limits, and who was let in."""

from __future__ import annotations

import asyncio
import re
from collections import Counter

import pytest

from shared.clock import now_ms
from shared.messages import Mail, Reply
from shared.store import Store, open_store
from shared.store.pairing import MOST_KEPT, Approved, CodeAnswer, CodeRefusal, PairingPerson, Pairings
from shared.store.pairing_code import ALPHABET, Code
from shared.store.parts import PartRow, parts_of
from tests.store.books import ask as rows_of
from tests.store.books import write
from tests.support.pipe import an_inbound

MINUTE, HOUR = 60_000, 3_600_000


def ann(user: str = "11", alt: str | None = None, *, platform: str = "telegram", name: str = "Ann") -> PairingPerson:
    return PairingPerson(platform, user, alt, name)


def part(person: PairingPerson, code: Code, text: str) -> PartRow:
    mail = [Mail(0, an_inbound(platform=person.platform, chat=person.user_id))]
    key = f"agent:main:{person.platform}:dm:{person.user_id}"
    return parts_of(mail, [Reply(text)], turn_id=code.turn_id, session_key=key, now=now_ms())[1][0]


async def ask(pairings: Pairings, person: PairingPerson) -> tuple[CodeAnswer, str]:
    """What a person who asks is told: the code, if there is one."""
    code = Code.fresh()
    later = part(person, code, "later")
    answered, _ = await pairings.ask(person, code, part(person, code, code.plain), later)
    return answered, code.plain if answered is CodeAnswer.CODE else ""


async def age(store: Store, ms: int) -> None:
    """Let so much time pass for all requests and locks."""
    await write(store, f"UPDATE pairing_requests SET asked_at = asked_at - {ms}")
    await write(store, f"UPDATE pairing_locks SET locked_until = locked_until - {ms}")


def test_P1_a_code_has_8_characters_without_look_alikes_from_a_secure_source(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = [Code.fresh().plain for _ in range(2000)]
    assert len(set(codes)) == len(codes) and {len(code) for code in codes} == {8}
    assert set("".join(codes)) == set(ALPHABET) and len(ALPHABET) == 32 and not set("0O1I") & set(ALPHABET)
    chosen: list[str] = []

    def choice(symbols: str) -> str:
        chosen.append(symbols)
        return symbols[0]

    monkeypatch.setattr("secrets.choice", choice)
    assert Code.fresh().plain == "AAAAAAAA" and chosen == [ALPHABET] * 8


async def test_P2_the_same_user_gets_no_second_code_within_ten_minutes_and_others_do(store: Store) -> None:
    _, first = await ask(store.pairings, ann())
    assert await ask(store.pairings, ann()) == (CodeAnswer.SILENCE, "")
    assert (await ask(store.pairings, ann("12")))[0] is CodeAnswer.CODE
    await age(store, 9 * MINUTE)
    assert (await ask(store.pairings, ann()))[0] is CodeAnswer.SILENCE
    await age(store, 2 * MINUTE)
    answered, second = await ask(store.pairings, ann())
    assert answered is CodeAnswer.CODE and second != first
    assert await store.pairings.approve("telegram", first, "cli") is CodeRefusal.WRONG
    assert await store.pairings.approve("telegram", second, "cli") == Approved("11", "Ann")


async def test_P3_a_platform_has_three_open_codes_and_another_is_not_affected(store: Store) -> None:
    for user in ("1", "2", "3"):
        assert (await ask(store.pairings, ann(user)))[0] is CodeAnswer.CODE
    assert (await ask(store.pairings, ann("4")))[0] is CodeAnswer.LATER
    assert (await ask(store.pairings, ann("4", platform="signal")))[0] is CodeAnswer.CODE
    assert len(await store.pairings.requests(10)) == 4


async def test_P3_of_many_who_ask_at_once_three_get_a_code(store: Store, database_url: str) -> None:
    other = await open_store(database_url, history_messages=4)
    asked = [ask((store if n % 2 else other).pairings, ann(str(n))) for n in range(12)]
    counts = Counter(answered for answered, _ in await asyncio.gather(*asked))
    await other.database.close()
    assert counts == {CodeAnswer.CODE: 3, CodeAnswer.LATER: 9}


async def test_P4_a_code_is_taken_in_lower_case_and_padded_and_tells_who_was_approved(store: Store) -> None:
    _, code = await ask(store.pairings, ann(name="Ann Li"))
    assert await store.pairings.approve("telegram", f"  {code.lower()}\n", "cli") == Approved("11", "Ann Li")
    assert await store.pairings.requests(10) == []
    assert await store.pairings.is_approved(ann()) and not await store.pairings.is_approved(ann(platform="signal"))


async def test_P5_five_wrong_codes_lock_the_platform_for_an_hour_for_valid_codes_too(store: Store) -> None:
    _, code = await ask(store.pairings, ann())
    _, elsewhere = await ask(store.pairings, ann(platform="signal"))
    for _ in range(5):
        assert await store.pairings.approve("telegram", "AAAAAAAA", "cli") is CodeRefusal.WRONG
    assert await store.pairings.approve("telegram", code, "cli") is CodeRefusal.LOCKED
    assert (await ask(store.pairings, ann("12")))[0] is CodeAnswer.SILENCE
    assert await store.pairings.approve("signal", elsewhere, "cli") == Approved("11", "Ann")
    await write(store, f"UPDATE pairing_locks SET locked_until = locked_until - {HOUR}")
    assert await store.pairings.approve("telegram", code, "cli") == Approved("11", "Ann")
    assert (await ask(store.pairings, ann("12")))[0] is CodeAnswer.CODE


async def test_a_right_code_lets_wrong_ones_be_counted_from_the_beginning(store: Store) -> None:
    for user in ("1", "2"):
        _, code = await ask(store.pairings, ann(user))
        for _ in range(4):
            assert await store.pairings.approve("telegram", "AAAAAAAA", "cli") is CodeRefusal.WRONG
        assert await store.pairings.approve("telegram", code, "cli") == Approved(user, "Ann")


async def test_P7_a_code_is_valid_for_an_hour_and_then_removed(store: Store) -> None:
    _, late = await ask(store.pairings, ann())
    await age(store, 59 * MINUTE)
    assert len(await store.pairings.requests(10)) == 1
    await age(store, 2 * MINUTE)
    assert await store.pairings.requests(10) == []
    assert await store.pairings.approve("telegram", late, "cli") is CodeRefusal.WRONG
    assert not await store.pairings.is_approved(ann())
    await ask(store.pairings, ann("12"))
    assert await rows_of(store, "SELECT user_id FROM pairing_requests") == [{"user_id": "12"}]


async def test_P8_codes_are_stored_as_salted_hashes_and_no_list_shows_one(store: Store) -> None:
    codes = [(await ask(store.pairings, ann(user)))[1] for user in ("1", "2", "3")]
    rows = await rows_of(store, "SELECT * FROM pairing_requests")
    assert all(re.fullmatch("[0-9a-f]{64}", row["digest"]) for row in rows)
    assert len({row["salt"] for row in rows}) == 3 and all(len(bytes.fromhex(row["salt"])) == 16 for row in rows)
    shown = f"{rows} {await store.pairings.requests(10)} {await store.pairings.approved(10)}"
    assert not [code for code in codes if code in shown]


async def test_P8_the_part_that_told_a_code_is_removed_when_the_code_was_used_or_has_expired(store: Store) -> None:
    _, used = await ask(store.pairings, ann("1"))
    _, expired = await ask(store.pairings, ann("2"))
    await write(store, "UPDATE outbox SET state = 'sent'")
    await store.pairings.approve("telegram", used, "cli")
    assert used not in str(await rows_of(store, "SELECT payload FROM outbox"))
    await age(store, HOUR)
    await ask(store.pairings, ann("3"))
    assert expired not in str(await rows_of(store, "SELECT payload FROM outbox"))


@pytest.mark.parametrize(
    "broken",
    ["salt = ''", "digest = 'short'", "digest = ''", "asked_at = 0", "asked_at = 9000000000000000000"],
)
async def test_P9_malformed_records_are_ignored_and_removed_and_approve_nobody(store: Store, broken: str) -> None:
    _, code = await ask(store.pairings, ann("1"))
    await write(store, f"UPDATE pairing_requests SET {broken}")
    for given in (code, "", "A" * 10_000, "\x00", "\ud800", "ÄÖÜ"):
        assert await store.pairings.approve("telegram", given, "cli") in (CodeRefusal.WRONG, CodeRefusal.LOCKED)
    await write(store, "DELETE FROM pairing_locks")
    assert not await store.pairings.is_approved(ann("1"))
    assert (await ask(store.pairings, ann("2")))[0] is CodeAnswer.CODE
    if broken != "digest = ''":  # that of somebody who was told to come later
        assert [row["user_id"] for row in await rows_of(store, "SELECT user_id FROM pairing_requests")] == ["2"]


async def test_P10_two_ids_of_one_person_count_as_one_person(store: Store) -> None:
    phone, hidden = ann("49151", "9@lid", platform="whatsapp"), ann("9@lid", platform="whatsapp")
    flipped = ann("9@lid", "49151", platform="whatsapp")
    _, code = await ask(store.pairings, phone)
    assert [(await ask(store.pairings, same))[0] for same in (hidden, flipped)] == [CodeAnswer.SILENCE] * 2
    await store.pairings.approve("whatsapp", code, "cli")
    for same in (phone, hidden, flipped, ann("49151", platform="whatsapp")):
        assert await store.pairings.is_approved(same)
    _, again = await ask(store.pairings, flipped)
    await store.pairings.approve("whatsapp", again, "cli")
    assert len(await store.pairings.approved(10)) == 1
    assert await store.pairings.revoke("whatsapp", "49151") and not await store.pairings.is_approved(hidden)


async def test_P11_revoking_ends_access_and_says_whether_there_was_any(store: Store) -> None:
    assert not await store.pairings.revoke("telegram", "11")
    _, code = await ask(store.pairings, ann())
    await store.pairings.approve("telegram", code, "cli")
    assert not await store.pairings.revoke("signal", "11")
    assert await store.pairings.revoke("telegram", "11") and not await store.pairings.is_approved(ann())
    assert not await store.pairings.revoke("telegram", "11")


async def test_of_two_who_approve_one_code_at_once_one_does_and_nobody_is_let_in_twice(
    store: Store, database_url: str
) -> None:
    other = await open_store(database_url, history_messages=4)
    _, code = await ask(store.pairings, ann())
    both = await asyncio.gather(
        store.pairings.approve("telegram", code, "one"), other.pairings.approve("telegram", code, "two")
    )
    await other.database.close()
    assert sorted(map(str, both)) == sorted(map(str, [Approved("11", "Ann"), CodeRefusal.WRONG]))
    assert len(await store.pairings.approved(10)) == 1


async def test_people_who_ask_for_ever_leave_a_bounded_number_of_rows(store: Store) -> None:
    for n in range(MOST_KEPT + 20):
        await ask(store.pairings, ann(str(n)))
        await ask(store.pairings, ann("1"))
    assert await rows_of(store, "SELECT COUNT(*) AS n FROM pairing_requests") == [{"n": MOST_KEPT}]
    assert await rows_of(store, "SELECT COUNT(*) AS n FROM outbox") == [{"n": MOST_KEPT}]
    await age(store, HOUR)
    assert (await ask(store.pairings, ann("1")))[0] is CodeAnswer.CODE
    assert await rows_of(store, "SELECT COUNT(*) AS n FROM pairing_requests") == [{"n": 1}]


async def test_an_answer_that_a_change_overtook_is_not_remembered(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, code = await ask(store.pairings, ann())
    await store.pairings.approve("telegram", code, "cli")
    store.approvals.trust()
    read = store.pairings.is_approved

    async def overtaken(person: PairingPerson) -> bool:
        answer = await read(person)
        await store.pairings.revoke("telegram", person.user_id)
        store.approvals.forget()  # what the process hears
        return answer

    monkeypatch.setattr(store.pairings, "is_approved", overtaken)
    assert await store.approvals.has(ann())
    monkeypatch.undo()
    assert not await store.approvals.has(ann())


async def test_approvals_are_remembered_for_a_bounded_number_of_people(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.store.approvals.MOST_KEPT", 3)
    assert not await store.approvals.has(ann()) and store.approvals.remembers == 0  # changes are not heard
    store.approvals.trust()
    for n in range(6):
        assert not await store.approvals.has(ann(str(n)))
    assert store.approvals.remembers == 3
    store.approvals.distrust()
    assert store.approvals.remembers == 0


async def test_wrong_codes_that_come_at_once_lock_the_platform_too(store: Store) -> None:
    _, code = await ask(store.pairings, ann())
    await asyncio.gather(*(store.pairings.approve("telegram", f"WRONG{n}", "cli") for n in range(20)))
    assert await store.pairings.approve("telegram", code, "cli") is CodeRefusal.LOCKED
