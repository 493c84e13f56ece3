"""The stages before an agent runs, each by itself: open, begin, decide, make room and prepare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from shared.clock import now_ms
from shared.door import accept
from shared.mail import TakeNotes, encode_mail
from shared.messages import Entry
from shared.pipeline import open_pipeline
from shared.settings import ResetSettings, Settings
from tests.store.books import write
from tests.support.pipe import Rig, an_inbound, key_of
from tests.support.stages import begun, decided, ending, held, hold, opened, replies
from workers.turn.counting import CRASH_FACTOR
from workers.turn.decide import begin, decide
from workers.turn.open import Opened, open_first
from workers.turn.outcome import LOST, REOPEN, AlreadyEnded, Conclusion
from workers.turn.run import make_room, prepare


class NoMoney:
    """A budget that is used up."""

    async def refusal(self, whose: str | None) -> str:
        return f"nothing is left for {whose}"


async def forget_redis(rig: Rig) -> None:
    for server in rig.pipe.servers.all:
        await server.client.flushall()


# -- open


async def test_a_message_is_opened_with_its_session_and_loaded_once(rig: Rig) -> None:
    key = await hold(rig, "hello")
    found = await opened(key)
    assert (found.mail.seq, found.mail.inbound.text, found.session.version) == (1, "hello", 0)
    again = await opened(replace(key, session=replace(found.session, message_count=7)))
    assert again.session.message_count == 7  # the one that is known was taken


async def test_mail_that_has_ended_is_only_to_leave_the_mailbox(rig: Rig) -> None:
    first = await rig.accept("hello")
    row = await rig.pipe.store.journal.find(first.id)
    await rig.run_turns()
    assert row is not None
    await rig.pipe.turns.put(key_of(), row["seq"], row["payload"].encode())  # by a receiver that was slow
    assert await open_first(held(rig, await rig.lease())) == AlreadyEnded((1,))


async def test_a_message_that_redis_lost_comes_first_and_is_to_be_put_back(rig: Rig) -> None:
    await rig.accept("lost")
    await forget_redis(rig)
    found = await opened(await hold(rig, "behind"))
    assert (found.mail.seq, found.mail.inbound.text) == (1, "lost")
    assert found.restore_payload is not None and b"lost" in found.restore_payload


async def test_a_message_that_cannot_be_read_is_opened_with_the_reason(rig: Rig) -> None:
    first = await rig.accept("hello")
    await write(rig.pipe.store, "UPDATE inbox SET payload = '{}' WHERE id = :id", id=first.id)
    await forget_redis(rig)
    await rig.pipe.turns.put(key_of(), 1, b"{}")
    key = held(rig, await rig.lease())
    found = await opened(key)
    assert found.unreadable is not None and found.mail.inbound.id == first.id
    assert ending(await begin(key, found)) == ("dead", "malformed", 0)


async def test_notes_to_take_are_no_turn_and_only_leave_the_mailbox(rig: Rig) -> None:
    await rig.pipe.turns.put(key_of(), 0, encode_mail(TakeNotes("ses_unknown")))
    lease = await rig.lease()
    assert await open_first(held(rig, lease)) == AlreadyEnded((lease.mail[0].seq,))


async def test_a_session_that_another_key_talks_to_is_loaded_again_under_its_lock(rig: Rig) -> None:
    key = await hold(rig, "hello")
    session = replace((await opened(key)).session, facts={f"joined:{key_of('c2')}": "1"})
    assert await open_first(replace(key, session=session)) is REOPEN
    assert isinstance(await open_first(replace(key, session=session)), Opened)  # the lock is ours by now
    await key.lock.give_back()


# -- begin


async def test_the_first_attempt_runs_in_the_worker_and_one_after_an_unseen_end_runs_isolated(rig: Rig) -> None:
    attempt = await begun(await hold(rig))  # and its worker dies
    assert (attempt.number, attempt.isolated) == (1, False)
    await rig.expire_lease(rig.pipe.turns, key_of())
    await rig.pipe.turns.recover(key_of())
    attempt = await begun(held(rig, await rig.lease()))
    assert (attempt.number, attempt.isolated) == (2, True)
    await attempt.lease.release(spent=True)  # this one was seen to fail
    attempt = await begun(held(rig, await rig.lease()))
    assert (attempt.number, attempt.isolated) == (3, True)  # the first is still unseen


async def test_a_message_that_killed_too_many_workers_gets_no_further_attempt(rig: Rig) -> None:
    key = await hold(rig)
    limit = rig.pipe.settings.max_attempts * CRASH_FACTOR
    found = await opened(key)
    assert ending(await begin(key, replace(found, attempts=limit))) == ("dead", "crashed", limit)
    attempt = await begin(key, replace(found, attempts=limit - 1))
    assert not isinstance(attempt, Conclusion)


async def test_a_message_from_before_a_stop_ends_without_a_word(rig: Rig) -> None:
    key = await hold(rig)
    key.lease.drop_until(now_ms())
    conclusion = await begin(key, await opened(key))
    assert ending(conclusion) == ("superseded", "stopped", 0)
    assert isinstance(conclusion, Conclusion)
    assert (conclusion.commit.entries, conclusion.commit.replies, conclusion.counted_as) == ((), (), "stopped")


async def test_a_key_that_another_worker_has_begins_nothing(rig: Rig) -> None:
    await rig.accept("first")
    await forget_redis(rig)
    await rig.accept("second")
    key = held(rig, await rig.lease())
    found = await opened(key)
    await rig.expire_lease(rig.pipe.turns, key_of())
    await rig.pipe.turns.recover(key_of())
    await rig.lease()  # another worker's
    assert await begin(key, found) is LOST
    assert key.lease.lost


# -- decide


async def test_what_is_said_is_run_by_the_agent_for_its_owner(rig: Rig) -> None:
    attempt = await decided(await hold(rig, "hello"))
    assert (attempt.inbound.text, attempt.again, attempt.album) == ("hello", None, ())
    assert attempt.session.owner == attempt.owner() and attempt.owner() is not None


async def test_a_session_that_was_over_ends_first_and_the_message_is_opened_in_the_next(
    make_settings: Callable[..., Settings],
) -> None:
    async with open_pipeline(make_settings(reset=ResetSettings(mode="idle"))) as pipe:
        rig = Rig(pipe)
        await rig.accept("before")
        await rig.run_turns()
        await write(pipe.store, "UPDATE sessions SET updated_at = 1")
        key = await hold(rig, "after")
        attempt = await begun(key)
        assert await decide(attempt) is REOPEN
        after = await opened(key)
        assert after.session.id != attempt.session.id
        assert (after.mail.seq, after.session.message_count) == (2, 0)


async def test_photos_of_an_album_become_one_message(rig: Rig) -> None:
    for n in range(3):
        await accept(rig.pipe, replace(an_inbound(f"photo {n}"), album="a1", received_at=now_ms() - 5000))
    attempt = await decided(held(rig, await rig.lease()))
    assert [mail.seq for mail in (attempt.mail, *attempt.album)] == [1, 2, 3]
    assert attempt.inbound.text == "photo 0\nphoto 1\nphoto 2"


async def test_a_command_ends_its_message_with_an_answer_and_leaves_another_if_that_cannot_be_kept(rig: Rig) -> None:
    conclusion = await decide(await begun(await hold(rig, "/title Trip")))
    assert isinstance(conclusion, Conclusion)
    assert (ending(conclusion), conclusion.counted_as) == (("answered", None, 1), "command")
    assert conclusion.commit.change.title == "Trip" and "Trip" in replies(conclusion)[0]
    assert conclusion.otherwise is not None
    assert replies(conclusion.otherwise()) == ["Sorry, /title did not work. Nothing was changed."]


async def test_retry_runs_the_agent_on_what_was_said_before(rig: Rig) -> None:
    await rig.accept("question")
    await rig.run_turns()
    attempt = await decided(await hold(rig, "/retry"))
    assert attempt.again is not None
    assert (attempt.inbound.text, attempt.mail.inbound.text, list(attempt.again.history)) == ("question", "/retry", [])


@pytest.mark.parametrize("text", ["hello", "/retry"])
async def test_beyond_a_budget_no_agent_runs_and_the_chat_is_told(rig: Rig, text: str) -> None:
    await rig.accept("before")
    await rig.run_turns()
    parts = rig.parts()
    parts.budgets = NoMoney()  # type: ignore[assignment]
    await rig.accept(text)
    conclusion = await decide(await begun(held(rig, await rig.lease(), parts=parts)))
    assert (ending(conclusion), replies(conclusion)) == (
        ("rejected", "budget", 1),
        ["nothing is left for webhook:u=u1"],
    )


# -- prepare


async def test_an_agent_is_told_the_history_the_words_and_the_id_of_its_turn(rig: Rig) -> None:
    await rig.accept("before")
    await rig.run_turns()
    attempt = await decided(await hold(rig, "now"))
    assert await make_room(attempt) is attempt  # an agent without a model needs none
    prepared = await prepare(attempt)
    turn = prepared.turn
    assert [entry.text for entry in turn.history] == ["before", "echo: before"]
    assert ([inbound.text for inbound in turn.mail], turn.attempt) == (["now"], 1)
    assert (turn.id, turn.session_id) == (prepared.proof.turn_id, attempt.session.id)
    assert (turn.speaker.shown_as, turn.memory, turn.context) == ("", (), "")


async def test_a_session_that_begins_with_rows_shows_them_unless_retry_brings_its_own(rig: Rig) -> None:
    attempt = replace(await decided(await hold(rig, "now")), seed=(Entry("user", "from the DM"),))
    assert [entry.text for entry in (await prepare(attempt)).turn.history] == ["from the DM"]
