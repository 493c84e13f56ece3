"""How questions end that nobody answers, and what is left of their runs: whatever becomes of the mail in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from keyturn import Ask, Done, Reply, Said, Turn
from shared.clock import now_ms
from shared.door import accept
from shared.messages import Terms
from shared.operating.messages import drop_message
from shared.pipeline import open_pipeline
from shared.settings import BudgetSettings, ResetSettings, Settings
from tests.flow.test_asking import BOTH, TEA, careful, dying_at, last_told, questions, say
from tests.flow.test_steps import by_rows, kill_inside, killed, left_in_sql, next_worker
from tests.store.books import ask, write
from tests.support import counted
from tests.support.counted import Killed, World
from tests.support.openai import open_provider
from tests.support.pipe import Rig, an_inbound, control_key, key_of
from workers.agents.functions import GeneratorAgent
from workers.agents.resolve import resolve
from workers.agents.tools.approval import SHOWN_CHARACTERS, TOO_LONG
from workers.side.budget import Budgets
from workers.turn.asking import NOT_THERE_YET, PARTLY_LOST
from workers.turn.open import load_session
from workers.turn.question import ASKING
from workers.turn.take import take_turns
from workers.upkeep import asks as upkeep
from workers.upkeep.asks import OverdueQuestions
from workers.upkeep.runs import AGE_MS, LeftoverRuns


@pytest.fixture
def world() -> World:
    return counted.new_world()


async def overdue(rig: Rig) -> None:
    """Time passes, and the housekeeper looks."""
    await write(rig.pipe.store, "UPDATE asks SET expires_at = :at WHERE state = 'open'", at=now_ms() - 1)
    await OverdueQuestions(rig.pipe).look()


async def waiting(rig: Rig) -> list[str]:
    return [row["id"] for row in await ask(rig.pipe.store, "SELECT id FROM inbox WHERE state = 'pending'")]


async def test_ag7_a_question_of_a_chosen_agents_conversation_expires_there(rig: Rig, world: World) -> None:
    async with open_provider(answer=by_rows(TEA)) as provider:
        rig.agent = careful(provider, approval_seconds=3600)
        parts = replace(rig.parts(), other_agents={"helper": rig.parts()})
        accepted = await accept(rig.pipe, replace(an_inbound("tea please"), terms=Terms(agent="helper")))
        await take_turns(await rig.lease(accepted.session_key), parts)
        await overdue(rig)
        await take_turns(await rig.lease(accepted.session_key), parts)
    assert await questions(rig) == ["expired"] and await last_told(rig) == "enjoy" and world.charged == []


async def test_ag7_a_question_expires_though_its_mail_is_stopped_and_then_dropped(rig: Rig, world: World) -> None:
    async with open_provider(answer=by_rows(TEA)) as provider:
        rig.agent = careful(provider, approval_seconds=3600)
        await say(rig, "tea please")
        await overdue(rig)
        [id] = await waiting(rig)
        await drop_message(rig.pipe, id, tell=False)
        assert await questions(rig) == ["open"]
        await overdue(rig)  # the first mail ended without the question: there is another
        await rig.accept("/stop")
        _, control = await rig.start(rig.pipe.control, control_key(key_of()))
        assert control is not None
        await rig.turns(control)
        await rig.run_turns()
    assert await questions(rig) == ["expired"] and await left_in_sql(rig) == 0 and world.charged == []


async def test_how_a_question_ended_is_known_for_a_month(rig: Rig, world: World) -> None:
    day = 24 * 3_600_000
    async with open_provider(answer=by_rows(TEA)) as provider:
        rig.agent = careful(provider, approval_seconds=3600)
        await say(rig, "tea please")
        await overdue(rig)
        await rig.run_turns()
    for days, known in ((29, ["expired"]), (31, [])):
        await write(rig.pipe.store, "UPDATE asks SET ended_at = :at", at=now_ms() - days * day)
        await OverdueQuestions(rig.pipe).look()
        assert await questions(rig) == known


async def test_ag7_two_questions_of_a_run_expire_and_the_chat_is_told_what_came_of_it_only(
    rig: Rig, world: World
) -> None:
    async with open_provider(answer=by_rows(BOTH)) as provider:
        rig.agent = careful(provider, approval_seconds=3600)
        await say(rig, "tea please")
        await overdue(rig)
        await rig.run_turns()
    rows = await ask(rig.pipe.store, "SELECT id FROM outbox")
    assert len(rows) == 2 and await last_told(rig) == "enjoy" and world.charged == []  # the questions, the answer
    assert "open" not in await questions(rig) and await left_in_sql(rig) == 0


async def test_ag7_a_worker_whose_clock_is_behind_ends_a_question_that_the_housekeeper_found_overdue(
    rig: Rig, world: World
) -> None:
    async with open_provider(answer=by_rows(TEA)) as provider:
        rig.agent = careful(provider, approval_seconds=3600)
        await say(rig, "tea please")
        await overdue(rig)
        await write(rig.pipe.store, "UPDATE asks SET expires_at = :at", at=now_ms() + 600_000)  # as the worker sees it
        await rig.run_turns()
    assert await questions(rig) == ["expired"]


async def test_ag7_a_question_that_cannot_be_read_or_whose_mailbox_is_full_holds_up_no_other(
    make_settings: Callable[..., Settings], world: World
) -> None:
    async with (
        open_pipeline(make_settings(mailbox_limit=1)) as pipe,
        open_provider(answer=by_rows(TEA)) as provider,
    ):
        rig = Rig(pipe, careful(provider, approval_seconds=3600))
        for chat in ("broken", "full", "good"):
            await say(rig, "tea please", chat=chat)
        await write(pipe.store, "UPDATE asks SET source = '[' WHERE session_key = :key", key=key_of("broken"))
        await rig.accept("hello", chat="full")
        await overdue(rig)
        agent, rig.agent = rig.agent, resolve("echo")
        await rig.run_turns(key_of("full"))
        rig.agent = agent
        await rig.run_turns(key_of("good"))
        assert await questions(rig) == ["expired", "open", "expired"]
        await overdue(rig)
        await rig.run_turns(key_of("full"))
        assert await questions(rig) == ["expired", "expired", "expired"]


async def test_ag7_a_question_whose_mail_never_gets_a_turn_is_ended_without_one(
    rig: Rig, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "MOST_TRIES", 2)
    async with open_provider(answer=by_rows(TEA)) as provider:
        rig.agent = careful(provider, approval_seconds=3600)
        await say(rig, "tea please")
        for _ in range(2):
            await overdue(rig)
            [id] = await waiting(rig)
            await drop_message(rig.pipe, id, tell=False)
        await overdue(rig)
    assert await questions(rig) == ["expired"] and await waiting(rig) == []
    assert ASKING not in (await load_session(key_of(), rig.pipe.store)).facts  # so steering and collecting go on
    await write(rig.pipe.store, "UPDATE runs SET created_at = :at", at=now_ms() - 2 * AGE_MS)
    await LeftoverRuns(rig.pipe).look()
    assert await left_in_sql(rig) == 0


@pytest.mark.parametrize("point", ["ask.before_expiry", "ask.after_expiry"])
async def test_ag7_a_housekeeper_that_dies_where_it_ends_a_question_is_followed_by_one_that_ends_it_once(
    rig: Rig, world: World, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    async with open_provider(answer=by_rows(TEA)) as provider:
        rig.agent = careful(provider, approval_seconds=3600)
        await say(rig, "tea please")
        monkeypatch.setattr(upkeep, "reach", dying_at(point))
        with pytest.raises(Killed):
            await overdue(rig)
        assert len(await waiting(rig)) == (point == "ask.after_expiry")
        await overdue(rig)
        assert len(await waiting(rig)) == 1
        await rig.run_turns()
    assert await questions(rig) == ["expired"] and await last_told(rig) == "enjoy" and world.charged == []


@pytest.mark.parametrize("word", ["/approve", "yes"])
async def test_ag7_an_answer_after_the_time_runs_nothing_though_no_housekeeper_looked(
    rig: Rig, world: World, word: str
) -> None:
    async with open_provider(answer=by_rows(TEA)) as provider:
        rig.agent = careful(provider, approval_seconds=3600)
        await say(rig, "tea please")
        await rig.accept(word)
        await write(rig.pipe.store, "UPDATE asks SET expires_at = :at", at=now_ms() + 1)
        await asyncio.sleep(0.01)  # it waits for its turn beyond the question's time, and came before it
        await rig.run_turns()
        assert world.charged == ["tea"]
        await say(rig, "tea please", chat="late")
        await write(rig.pipe.store, "UPDATE asks SET expires_at = :at WHERE state = 'open'", at=now_ms() - 1)
        assert (await say(rig, word, chat="late")).startswith("That question has expired")
    assert world.charged == ["tea"] and await questions(rig) == ["answered", "open"]


async def asks_for_ever(turn: Turn) -> Any:
    """An agent whose question has no end: any words answer it."""
    if turn.answers:
        yield Done((Reply(f"{turn.answers['q'].text}!"),))
    elif turn.mail[0].text == "ask me":
        yield Ask("q", "Well?")
    else:
        yield Done((Reply("fine"),))


async def test_an_agent_is_told_when_its_question_was_answered_and_when_its_time_was_over(rig: Rig) -> None:
    told: list[Said] = []

    async def asking(turn: Turn) -> Any:
        if turn.answers:
            told.append(turn.answers["q"])
            yield Done((Reply("thanks"),))
        else:
            yield Ask("q", "Well?", expires=timedelta(hours=1))

    rig.agent, began = GeneratorAgent(asking), now_ms()
    for answer in ("red", "/answer red"):
        await say(rig, "ask me")
        await say(rig, answer)
    await say(rig, "ask me")
    await overdue(rig)
    await rig.run_turns()
    assert [(said.text, said.is_expired) for said in told] == [("red", False), ("red", False), ("", True)]
    assert all(began <= said.at <= now_ms() for said in told)


async def test_a_question_that_ends_without_a_turn_leaves_the_other_run_of_its_conversation_waiting(rig: Rig) -> None:
    async def asking(turn: Turn) -> Any:
        yield Done((Reply("thanks"),)) if turn.answers else Ask("q", "Which?", ("red", "blue"))

    rig.agent, store = GeneratorAgent(asking), rig.pipe.store
    for text in ("ask me", "ask me again"):  # neither is a choice
        await say(rig, text)
    first, second = await ask(store, "SELECT id, run_id FROM asks ORDER BY created_at, id")
    await store.asks.expire(first["id"], now_ms())
    assert (await load_session(key_of(), store)).facts[ASKING] == second["run_id"]
    await store.asks.expire(second["id"], now_ms())
    assert ASKING not in (await load_session(key_of(), store)).facts


async def test_new_ends_the_questions_of_the_conversation_and_closes_their_runs(rig: Rig) -> None:
    rig.agent = GeneratorAgent(asks_for_ever)
    assert await say(rig, "ask me") == "Well?"
    await say(rig, "/title before")
    await say(rig, "/new")
    [row] = await ask(rig.pipe.store, "SELECT state, ended_at FROM asks")
    assert row["state"] == "closed" and row["ended_at"] is not None and await left_in_sql(rig) == 0
    assert await say(rig, "red") == "fine"
    assert (await say(rig, "/deny")).startswith("The conversation with that question is over")
    assert (await say(rig, "/resume before")).startswith("Back in")
    assert await say(rig, "red") == "fine"  # where it was asked, too
    session, _ = await rig.pipe.store.transcript.load(key_of(), "")
    assert ASKING not in session.facts


async def test_a_conversation_that_ends_by_itself_ends_its_questions(make_settings: Callable[..., Settings]) -> None:
    idle = ResetSettings(mode="idle", idle_minutes=30, notify_exclude=())
    async with open_pipeline(make_settings(reset=idle)) as pipe:
        rig = Rig(pipe, GeneratorAgent(asks_for_ever))
        await say(rig, "ask me")
        await write(pipe.store, "UPDATE sessions SET updated_at = :past", past=now_ms() - 3_600_000)
        assert await say(rig, "red") == "fine"
        assert await questions(rig) == ["closed"] and await left_in_sql(rig) == 0


async def test_new_in_one_chat_leaves_open_what_was_asked_in_another_chat_of_the_same_conversation(rig: Rig) -> None:
    rig.agent = GeneratorAgent(asks_for_ever)
    await say(rig, "ask me")
    await say(rig, "/title shared")
    await say(rig, "hello", chat="other")
    await say(rig, "/resume shared", chat="other")
    await say(rig, "ask me", chat="other")
    assert await questions(rig) == ["open", "open"]
    await say(rig, "/new", chat="other")
    assert await questions(rig) == ["open", "closed"]
    assert await say(rig, "red") == "red!"
    assert await questions(rig) == ["answered", "closed"] and await left_in_sql(rig) == 0


async def test_the_steps_of_a_run_are_kept_while_its_question_is_open(rig: Rig, world: World) -> None:
    """The mail that approved ends otherwise, when its call had been made: the next approval does not make it again."""
    async with open_provider(answer=by_rows(TEA)) as provider:
        rig.agent = careful(provider)
        await say(rig, "tea please")
        kill_inside(world, "tea")
        approval = await rig.accept("/approve")
        await killed(rig)
        await drop_message(rig.pipe, approval.id, tell=False)
        await write(rig.pipe.store, "UPDATE runs SET created_at = :at", at=now_ms() - 2 * AGE_MS)
        await LeftoverRuns(rig.pipe).look()
        assert await questions(rig) == ["open"]
        await rig.accept("/approve")
        await next_worker(rig)
    assert world.charged == ["tea"] and await questions(rig) == ["answered"] and await left_in_sql(rig) == 0
    assert "may have happened" in provider.requests[-1].last


async def test_what_a_run_used_is_counted_when_it_begins_to_wait_and_not_again_when_it_goes_on(
    rig: Rig, world: World
) -> None:
    run = ((("charge", "tea"),), (("charge", "tip"),))
    async with open_provider(answer=by_rows(run)) as provider:
        rig.agent = careful(provider)
        for n, text in enumerate(("tea please", "/approve", "/approve"), 1):
            await say(rig, text)
            assert (await rig.pipe.store.usage.of_all()).requests == n
    assert world.charged == ["tea", "tip"]


async def test_an_answer_beyond_the_budget_is_refused_and_the_run_still_waits(
    make_settings: Callable[..., Settings], world: World
) -> None:
    settings = make_settings(budget=BudgetSettings(user_tokens_per_day=1))
    async with open_pipeline(settings) as pipe, open_provider(answer=by_rows(TEA)) as provider:
        rig = Rig(pipe, careful(provider))
        await say(rig, "tea please")
        await rig.accept("/approve")
        await take_turns(await rig.lease(), replace(rig.parts(), budgets=Budgets(pipe)))
        assert "budget" in await last_told(rig) and await questions(rig) == ["open"] and world.charged == []
        assert await say(rig, "/approve") == "enjoy"  # another day
    assert world.charged == ["tea"]


@pytest.mark.parametrize("length", [9_000, 11_000])
async def test_a_person_is_shown_the_whole_arguments_or_is_not_asked(rig: Rig, world: World, length: int) -> None:
    what = "x" * length
    async with open_provider(answer=by_rows(((("charge", what),),))) as provider:
        rig.agent = careful(provider)
        told = await say(rig, "tea please")
    assert world.charged == []
    if length > SHOWN_CHARACTERS:
        assert told == "enjoy" and provider.requests[-1].last == TOO_LONG and await questions(rig) == []
    else:
        rows = await ask(rig.pipe.store, "SELECT destination FROM outbox LIMIT 1")
        parts = await rig.pipe.store.outbox.open_parts(rows[0]["destination"], 100)
        assert what in "".join(part.text for part in parts) and await questions(rig) == ["open"]


@pytest.mark.parametrize("yes", ["/approve", "yes"])
async def test_a_call_is_not_approved_while_a_message_of_its_question_was_given_up(
    rig: Rig, world: World, yes: str
) -> None:
    async with open_provider(answer=by_rows(((("charge", "x" * 9_000),),))) as provider:
        rig.agent = careful(provider)
        place = {"chat": "7", "platform": "telegram"}
        await say(rig, "tea please", **place)
        [first, *others] = await ask(rig.pipe.store, "SELECT id FROM outbox ORDER BY id")
        assert others  # the question is longer than a message
        await write(rig.pipe.store, "UPDATE outbox SET state = 'buried' WHERE id = :id", id=first["id"])
        assert await say(rig, yes, **place) == PARTLY_LOST
        assert world.charged == [] and await questions(rig) == ["open"]
        await write(rig.pipe.store, "UPDATE outbox SET state = 'sent'")  # an operator sent it again
        assert await say(rig, yes, **place) == "enjoy"
    assert len(world.charged) == 1


@pytest.mark.parametrize("yes", ["/approve", "yes"])
async def test_a_call_is_not_approved_before_all_of_its_question_was_sent(rig: Rig, world: World, yes: str) -> None:
    async with open_provider(answer=by_rows(((("charge", "x" * 9_000),),))) as provider:
        rig.agent = careful(provider)
        place = {"chat": "7", "platform": "telegram"}
        await say(rig, "tea please", **place)
        *_, last = await ask(rig.pipe.store, "SELECT id FROM outbox ORDER BY id")
        assert await say(rig, yes, **place) == NOT_THERE_YET
        await write(rig.pipe.store, "UPDATE outbox SET state = 'sent' WHERE id <> :id", id=last["id"])
        assert await say(rig, yes, **place) == NOT_THERE_YET
        assert world.charged == [] and await questions(rig) == ["open"]
        await write(rig.pipe.store, "UPDATE outbox SET state = 'sending' WHERE id = :id", id=last["id"])
        assert await say(rig, yes, **place) == "enjoy"
    assert len(world.charged) == 1


async def test_whoever_presses_a_button_has_seen_the_question_though_its_receipt_was_lost(
    rig: Rig, world: World
) -> None:
    async with open_provider(answer=by_rows(((("charge", "tea"),),))) as provider:
        rig.agent = careful(provider)
        place = {"chat": "7", "platform": "telegram"}
        await say(rig, "tea please", **place)
        [asked] = await ask(rig.pipe.store, "SELECT id FROM asks")
        assert await say(rig, f"/approve {asked['id']}", **place) == "enjoy"
    assert world.charged == ["tea"]
