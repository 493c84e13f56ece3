"""Asking a person: the turn ends with the question, and the answer takes it up, in any process and at any time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from keyturn import Ask, Done, Event, Reply, Row, Turn
from shared.agent.turn import Said
from shared.clock import now_ms
from shared.codec import message_id
from shared.door import accept
from shared.messages import Entry, Kind, Source, TaskInbound
from shared.operating.schedules import Maker, WantedSchedule, add_schedule, run_schedule
from shared.pipeline import open_pipeline
from shared.reading.questions import question_page
from shared.session_key import SessionKey
from shared.settings import Settings
from tests.flow.test_steps import by_rows, config, kill_inside, killed, left_in_sql, next_worker
from tests.flow.test_tools import says
from tests.store.books import ask, write
from tests.support import counted
from tests.support.counted import Killed, World
from tests.support.openai import Asked, Provider, a_call, open_provider
from tests.support.pipe import Rig, an_inbound, key_of
from workers.agents.functions import GeneratorAgent
from workers.agents.llm import LlmAgent
from workers.agents.tools.approval import NO_ANSWER, UNATTENDED
from workers.turn import conclude, run
from workers.turn.asking import TOO_EARLY
from workers.upkeep.asks import OverdueQuestions

SECONDS = 60
TEA = ((("charge", "tea"),),)
BOTH = ((("look", "menu"), ("charge", "tea"), ("charge", "tip")),)


@pytest.fixture
def world() -> World:
    return counted.new_world()


def careful(provider: Provider, **changes: Any) -> LlmAgent:
    """An agent that asks before it charges."""
    return LlmAgent(config(provider, approve=("char*",), **changes))


async def say(rig: Rig, text: str, *, key: str = key_of(), **about: Any) -> str:
    """What the chat is told when somebody says this."""
    accepted = await rig.accept(text, **about)
    async with asyncio.timeout(SECONDS):
        await rig.run_turns(accepted.session_key)
    return await last_told(rig)


async def last_told(rig: Rig) -> str:
    rows = await ask(rig.pipe.store, "SELECT id, destination FROM outbox ORDER BY id DESC LIMIT 1")
    parts = await rig.pipe.store.outbox.open_parts(rows[0]["destination"], 1000)
    return parts[-1].text


async def questions(rig: Rig) -> list[str]:
    return [row["state"] for row in await ask(rig.pipe.store, "SELECT state FROM asks ORDER BY created_at, id")]


async def test_ag1_a_question_survives_a_restart_of_every_process_and_the_approved_call_runs_once(
    make_settings: Callable[..., Settings], world: World
) -> None:
    async with open_provider(answer=by_rows(TEA)) as provider:
        async with open_pipeline(make_settings()) as pipe:
            rig = Rig(pipe, careful(provider))
            told = await say(rig, "tea please")
            assert told == 'May I run `charge` with this?\n```\n{"what":"tea"}\n```\n(/approve or /deny)'
            assert world.charged == [] and await questions(rig) == ["open"]
            [row] = await ask(pipe.store, "SELECT state FROM inbox")
            assert row["state"] == "answered"
            assert [name for name in await rig.residue() if ":turns:" in name] == []  # no lease, no mail, no worker
        async with open_pipeline(make_settings()) as pipe:
            rig = Rig(pipe, careful(provider))
            assert await say(rig, "/approve") == "enjoy"
            assert world.charged == ["tea"] and await questions(rig) == ["answered"]
            assert await left_in_sql(rig) == 0
            assert await rig.transcript() == ["tea please", told, "/approve", "", "charged tea", "enjoy"]
            [usage] = await ask(pipe.store, "SELECT requests FROM usage")
            assert usage["requests"] == 2


async def test_ag2_an_approval_that_is_given_twice_at_once_counts_once_and_the_second_is_told(
    rig: Rig, world: World
) -> None:
    async with open_provider(answer=by_rows(TEA)) as provider:
        rig.agent = careful(provider)
        await say(rig, "tea please")
        await asyncio.gather(rig.accept("/approve"), rig.accept("/approve"))
        await rig.run_turns()
    assert world.charged == ["tea"]
    assert await last_told(rig) == "That question is settled already."


@pytest.mark.parametrize("words", ["ok", "/approve"])
async def test_what_was_said_before_a_question_was_asked_approves_nothing(rig: Rig, world: World, words: str) -> None:
    """It waited for its turn meanwhile: whoever said it has not seen the question."""

    def answer(asked: Asked) -> str | dict[str, Any]:
        return "what?" if asked.last == words == "ok" else tea(asked)

    async with open_provider(answer=answer) as provider:
        rig.agent = careful(provider)
        for text in ("tea please", words):
            await rig.accept(text)
        await rig.run_turns()
        assert world.charged == [] and await questions(rig) == ["open"]
        assert await last_told(rig) == ("what?" if words == "ok" else TOO_EARLY)
        assert await say(rig, words) == "enjoy"
    assert world.charged == ["tea"]


async def test_ag2_an_approval_that_is_given_twice_at_once_approves_no_later_call_of_the_run(
    rig: Rig, world: World
) -> None:
    async with open_provider(answer=by_rows(((("charge", "tea"),), (("charge", "tip"),)))) as provider:
        rig.agent = careful(provider)
        await say(rig, "tea please")
        await asyncio.gather(rig.accept("/approve"), rig.accept("/approve"))
        await rig.run_turns()
        assert world.charged == ["tea"] and await questions(rig) == ["answered", "open"]
        assert await last_told(rig) == TOO_EARLY
        assert await say(rig, "/approve") == "enjoy"
    assert world.charged == ["tea", "tip"]


def tea(asked: Asked) -> str | dict[str, Any]:
    """A model that charges for the tea in each turn, whatever was said before."""
    if asked.body["messages"][-1]["role"] == "tool":
        return "enjoy"
    return {"content": None, "tool_calls": [a_call("charge", '{"what":"tea"}', "c0")]}


@pytest.mark.parametrize(("leave", "left"), [("/new", "closed"), ("/branch", "open")])
async def test_a_question_of_the_conversation_before_keeps_no_answer_from_the_next_one(
    rig: Rig, world: World, leave: str, left: str
) -> None:
    async with open_provider(answer=tea) as provider:
        rig.agent = careful(provider)
        await say(rig, "tea please")
        for answer in ("yes", "/approve"):
            await say(rig, leave)
            await say(rig, "tea please")
            assert await say(rig, answer) == "enjoy"
    assert world.charged == ["tea", "tea"] and await questions(rig) == [left, "answered", "answered"]


async def test_each_of_two_people_who_were_asked_in_a_group_approves_their_own_call(
    make_settings: Callable[..., Settings], world: World
) -> None:
    settings = make_settings(group_sessions_per_user=False)
    async with open_pipeline(settings) as pipe, open_provider(answer=tea) as provider:
        rig = Rig(pipe, careful(provider))

        async def said(text: str, user: str) -> str:
            inbound = an_inbound(text, chat="g1", chat_type="group")
            inbound = replace(inbound, source=replace(inbound.source, user=user))
            await rig.run_turns((await accept(pipe, inbound)).session_key)
            return await last_told(rig)

        await said("tea please", "ann")
        await said("tea please", "bob")
        assert await said("/approve 1", "ann") == "enjoy"
        assert await questions(rig) == ["answered", "open"]
        assert await said("/approve", "ann") == "This question is for somebody else."
        assert await said("/deny", "bob") == "enjoy"
        assert world.charged == ["tea"] and await questions(rig) == ["answered", "answered"]


@pytest.mark.parametrize("admins", [False, True])
async def test_ag3_somebody_else_in_the_group_cannot_approve_unless_admins_may_and_it_is_one(
    make_settings: Callable[..., Settings], world: World, admins: bool
) -> None:
    settings = make_settings(group_sessions_per_user=False, admin_users=("webhook:boss",), admins_may_approve=admins)
    async with open_pipeline(settings) as pipe, open_provider(answer=by_rows(TEA)) as provider:
        rig = Rig(pipe, careful(provider))
        group = "agent:main:webhook:group:g1"

        async def said(text: str, user: str) -> str:
            inbound = an_inbound(text, chat="g1", chat_type="group")
            inbound = replace(inbound, source=replace(inbound.source, user=user))
            accepted = await accept(pipe, inbound)
            assert accepted.session_key == group
            await rig.run_turns(group)
            return await last_told(rig)

        await said("tea please", "ann")
        assert await said("/approve", "eve") == "This question is for somebody else."
        assert world.charged == [] and await questions(rig) == ["open"]
        answer = await said("/approve", "boss")
        assert (answer == "enjoy", world.charged) == (admins, ["tea"] if admins else [])
        if not admins:
            assert await said("/approve", "ann") == "enjoy" and world.charged == ["tea"]


async def test_ag3_an_admin_who_approves_lends_the_run_no_rights_and_is_not_asked_next(
    make_settings: Callable[..., Settings], world: World
) -> None:
    settings = make_settings(group_sessions_per_user=False, admin_users=("webhook:boss",), admins_may_approve=True)
    run = ((("charge", "tea"),), (("order", "cake"), ("charge", "cake")))
    async with open_pipeline(settings) as pipe, open_provider(answer=by_rows(run)) as provider:
        rig = Rig(pipe, careful(provider))
        for text, user in (("tea please", "ann"), ("/approve", "boss")):
            inbound = an_inbound(text, chat="g1", chat_type="group")
            await accept(pipe, replace(inbound, source=replace(inbound.source, user=user)))
            await rig.run_turns("agent:main:webhook:group:g1")
        [second] = await pipe.store.asks.open("agent:main:webhook:group:g1")
    assert world.charged == ["tea"] and world.ordered_for == ["ann"] and second.source.user == "ann"


async def test_ag4_ag10_two_calls_wait_for_both_answers_and_what_had_finished_beside_them_is_not_repeated(
    rig: Rig, world: World
) -> None:
    async with open_provider(answer=by_rows(BOTH)) as provider:
        rig.agent = careful(provider)
        told = await say(rig, "tea please")
        assert told.startswith("1. May I run `charge`") and "(/deny 2" not in told and "/approve 2 or /deny 2" in told
        assert world.looked == ["menu"] and world.charged == []
        assert (await say(rig, "/approve")).startswith("Which one? 1. May I")
        assert (await say(rig, "/approve 1")).startswith("Noted. Still open: 2. May I run `charge`")
        assert world.charged == [] and await questions(rig) == ["answered", "open"]
        assert (await say(rig, "/deny 1")).startswith("Which one? 2. May I run `charge`")  # it is answered already
        assert await say(rig, "/deny 2") == "enjoy"
    assert world.looked == ["menu"] and world.charged == ["tea"]
    assert (await rig.transcript())[-4:] == ["saw menu", "charged tea", "Not run: denied by the user.", "enjoy"]


@pytest.mark.parametrize(("word", "charged"), [("Yes.", ["tea"]), ("no", []), ("ok", ["tea"])])
async def test_ag5_a_plain_yes_or_no_answers_the_open_question(
    rig: Rig, world: World, word: str, charged: list[str]
) -> None:
    async with open_provider(answer=by_rows(TEA)) as provider:
        rig.agent = careful(provider)
        await say(rig, "tea please")
        assert await say(rig, word) == "enjoy"
    assert world.charged == charged and await questions(rig) == ["answered"]


async def test_ag5_a_yes_without_an_open_question_is_an_ordinary_message(rig: Rig) -> None:
    async with open_provider() as provider:
        rig.agent = careful(provider)
        await say(rig, "hello")
        assert await say(rig, "yes") == "heard: yes"
        assert await say(rig, "/approve") == "There is no open question here."


async def chooser(turn: Turn) -> Any:
    """Asks for a colour, and then for a name in any words."""
    if "name" in turn.answers:
        yield Done((Reply(f"{turn.answers['colour'].choice}: {turn.answers['name'].text}"),))
    elif "colour" in turn.answers:
        yield Ask("name", "What shall I call it?")
    else:
        yield Ask("colour", "Which colour?", ("red", "dark blue"))


async def test_ag5_the_text_of_a_choice_and_any_words_answer_questions_that_ask_for_them(rig: Rig) -> None:
    rig.agent = GeneratorAgent(chooser)
    assert await say(rig, "paint it") == "Which colour?\n(red / dark blue)"
    assert await say(rig, "Dark Blue") == "What shall I call it?"
    assert await say(rig, "the boat") == "dark blue: the boat"
    assert await left_in_sql(rig) == 0


@pytest.mark.parametrize("said", ["Go on!", "go on", "/answer Go on!", "Stop. ", "stop"])
async def test_ag5_a_choice_is_named_by_its_words_whatever_marks_it_ends_with(rig: Rig, said: str) -> None:
    async def agent(turn: Turn) -> Any:
        if turn.answers:
            yield Done((Reply(f"chosen: {turn.answers['q'].choice}"),))
        else:
            yield Ask("q", "Really?", ("Go on!", "Stop. ", "Stop"))

    rig.agent = GeneratorAgent(agent)
    await say(rig, "paint it")
    chosen = "Go on!" if "o on" in said else "Stop. " if "." in said else "Stop"
    assert await say(rig, said) == f"chosen: {chosen}"


async def test_an_answer_that_came_in_several_pieces_is_heard_whole(rig: Rig) -> None:
    rig.agent = GeneratorAgent(chooser)
    key, long = key_of("7", "telegram"), "x" * 4096  # the user's app cut it
    for text in ("paint it", "red"):
        await rig.accept(text, chat="7", platform="telegram")
        await rig.run_turns(key)
    await rig.accept(long, chat="7", platform="telegram")
    await rig.accept("the end", chat="7", platform="telegram")
    await rig.run_turns(key)
    assert "".join((await rig.transcript(key))[-1].split()) == f"red:{long}theend"


async def test_ag6_an_approval_counts_for_the_arguments_that_were_shown_and_for_no_others(world: World) -> None:
    def taken_up(what: str, answers: dict[str, Said]) -> Turn:
        made = [{"id": "c0", "name": "charge", "arguments": f'{{"what": "{what}"}}'}]
        row = Entry("assistant", "", data={"tool_calls": made})
        return Turn("t", key_of(), "ses", (), (an_inbound("x"),), run="run_1", rows=(row,), answers=answers)

    async def events(agent: LlmAgent, turn: Turn) -> list[Event]:
        return [event async for event in agent.run(turn)]

    async with open_provider(answer=by_rows(TEA)) as provider:
        agent = careful(provider)
        [asked] = await events(agent, taken_up("tea", {}))
        assert isinstance(asked, Ask)
        yes = {asked.id: Said("yes", "yes")}
        [again] = await events(agent, taken_up("a house", yes))
        assert isinstance(again, Ask) and again.id != asked.id and world.charged == []
        await events(agent, taken_up("tea", yes))
    assert world.charged == ["tea"]


async def test_ag7_a_question_that_nobody_answers_ends_as_denied_and_a_late_answer_is_told_so(
    rig: Rig, world: World
) -> None:
    async with open_provider(answer=by_rows(TEA)) as provider:
        rig.agent = careful(provider, approval_seconds=3600)
        await say(rig, "tea please")
        duty = OverdueQuestions(rig.pipe)
        await duty.look()
        assert await ask(rig.pipe.store, "SELECT id FROM inbox WHERE state = 'pending'") == []  # its time is not over
        await write(rig.pipe.store, "UPDATE asks SET expires_at = :now", now=now_ms() - 1)
        for _ in range(3):
            await duty.look()
        assert len(await ask(rig.pipe.store, "SELECT id FROM inbox WHERE state = 'pending'")) == 1
        await rig.run_turns()
        assert provider.requests[-1].last == NO_ANSWER and await last_told(rig) == "enjoy"
        assert await questions(rig) == ["expired"] and world.charged == []
        assert (await say(rig, "/approve")).startswith("That question has expired")
    assert world.charged == [] and await left_in_sql(rig) == 0


async def test_ag7_mail_that_says_a_question_has_expired_ends_none_before_its_time(rig: Rig, world: World) -> None:
    async with open_provider(answer=by_rows(TEA)) as provider:
        rig.agent = careful(provider)
        await say(rig, "tea please")
        [row] = await ask(rig.pipe.store, "SELECT id FROM asks")
        rig.agent = GeneratorAgent(_plain)
        assert await say(rig, "too early", event_id=f"question-expired:{row['id']}:0") == "fine"  # as any other message
    assert await questions(rig) == ["open"]


async def test_ag8_another_message_is_a_turn_of_its_own_and_the_question_stays_open(rig: Rig, world: World) -> None:
    async with open_provider(answer=by_rows(TEA)) as provider:
        rig.agent = careful(provider)
        await say(rig, "tea please")
        rig.agent = GeneratorAgent(_plain)
        assert await say(rig, "what is the weather?") == "fine"
        assert await questions(rig) == ["open"] and world.charged == []
        rig.agent = careful(provider)
        assert await say(rig, "yes") == "enjoy"
    assert world.charged == ["tea"]


async def _plain(turn: Turn) -> Any:
    yield Done((Reply("fine"),))


async def test_the_model_asks_the_user_and_reads_the_answer_as_the_result_of_its_call(rig: Rig, world: World) -> None:
    asking = {
        "content": None,
        "tool_calls": [a_call("ask_user", '{"question": "How hot?", "choices": ["hot", "mild"]}')],
    }
    async with open_provider(answer=says(asking, "as you like")) as provider:
        rig.agent = LlmAgent(config(provider, ask_user=True))
        assert await say(rig, "soup") == "How hot?\n(hot / mild)"
        assert await say(rig, "Mild") == "as you like"
    assert provider.requests[-1].last == "mild" and len(provider.requests) == 2
    assert await left_in_sql(rig) == 0


async def test_a_question_of_the_model_without_words_is_seen_and_choices_without_words_are_none(rig: Rig) -> None:
    asking = {"content": None, "tool_calls": [a_call("ask_user", '{"question": " ", "choices": ["", " "]}')]}
    async with open_provider(answer=says(asking, "fine")) as provider:
        rig.agent = LlmAgent(config(provider, ask_user=True))
        assert await say(rig, "soup") == "?"
        assert await say(rig, "what?") == "fine" and provider.requests[-1].last == "what?"


async def test_an_approved_call_whose_worker_died_inside_it_is_not_made_again(rig: Rig, world: World) -> None:
    async with open_provider(answer=by_rows(TEA)) as provider:
        rig.agent = careful(provider)
        await say(rig, "tea please")
        kill_inside(world, "tea")
        await rig.accept("/approve")
        await killed(rig)
        assert await questions(rig) == ["open"]  # the answer is mail until its turn is committed
        await next_worker(rig)
    assert world.charged == ["tea"] and await questions(rig) == ["answered"]
    assert "may have happened" in provider.requests[-1].last and await left_in_sql(rig) == 0


async def test_ag1_a_worker_that_dies_before_its_question_is_kept_is_followed_by_one_that_asks_once(
    rig: Rig, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_provider(answer=by_rows(TEA)) as provider:
        rig.agent = careful(provider)
        await rig.accept("tea please")
        monkeypatch.setattr(conclude, "reach", dying_at("ask.before_park"))
        await killed(rig)
        assert await questions(rig) == []
        await next_worker(rig)
        assert await questions(rig) == ["open"] and len(provider.requests) == 1  # the recorded answer is used again
        assert await say(rig, "/approve") == "enjoy"
    assert world.charged == ["tea"] and await left_in_sql(rig) == 0


@pytest.mark.parametrize("point", ["step.before_take_up", "step.after_take_up"])
async def test_ag1_an_approval_whose_worker_dies_where_it_takes_the_run_up_is_carried_out_once(
    rig: Rig, world: World, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    async with open_provider(answer=by_rows(TEA)) as provider:
        rig.agent = careful(provider)
        await say(rig, "tea please")
        await rig.accept("/approve")
        monkeypatch.setattr(run, "reach", dying_at(point))
        await killed(rig)
        await next_worker(rig)
        assert await last_told(rig) == "enjoy" and await questions(rig) == ["answered"]
    assert world.charged == ["tea"] and await left_in_sql(rig) == 0


def dying_at(point: str) -> Callable[[str], None]:
    """The worker dies where it reaches this for the first time."""
    coming = [point]

    def reach(reached: str) -> None:
        if reached in coming:
            coming.clear()
            raise Killed

    return reach


async def test_an_answer_in_a_conversation_that_is_over_runs_nothing(rig: Rig, world: World) -> None:
    async with open_provider(answer=by_rows(TEA)) as provider:
        rig.agent = careful(provider)
        await say(rig, "tea please")
        await say(rig, "/new")
        assert (await say(rig, "/approve")).startswith("The conversation with that question is over")
    assert world.charged == [] and await questions(rig) == ["closed"] and await left_in_sql(rig) == 0


async def test_a_question_that_expires_says_when(rig: Rig) -> None:
    async def agent(turn: Turn) -> Any:
        yield Ask("q", "Well?", expires=timedelta(hours=1))

    rig.agent = GeneratorAgent(agent)
    await say(rig, "hello")
    [row] = await ask(rig.pipe.store, "SELECT expires_at, created_at FROM asks")
    assert row["expires_at"] - row["created_at"] == 3_600_000


async def test_a_question_that_names_no_time_does_not_wait_for_ever(rig: Rig) -> None:
    async def agent(turn: Turn) -> Any:
        yield Ask("q", "Well?")

    rig.agent = GeneratorAgent(agent)
    await say(rig, "hello")
    [row] = await ask(rig.pipe.store, "SELECT expires_at, created_at FROM asks")
    assert row["expires_at"] - row["created_at"] == 30 * 86_400_000


@pytest.mark.parametrize("named", [timedelta.max, timedelta.min])
async def test_a_question_that_names_a_time_without_a_date_is_listed_and_ends(rig: Rig, named: timedelta) -> None:
    async def asks(turn: Turn) -> Any:
        if turn.answers:
            yield Done((Reply("fine"),))
        else:
            yield Ask("q", "Which one?", expires=named)

    rig.agent = GeneratorAgent(asks)
    await say(rig, "paint it")
    [waits] = await question_page(rig.pipe.store, 10)
    assert waits.text == "Which one?" and waits.expires_at is not None
    assert waits.is_overdue is (named < timedelta(0))
    if waits.is_overdue:
        await OverdueQuestions(rig.pipe).look()
        await rig.run_turns()
    else:
        assert await say(rig, "this one") == "fine"
    assert await questions(rig) == ["expired" if waits.is_overdue else "answered"]


@pytest.mark.parametrize("kind", [Kind.STEP, Kind.RESULT])
async def test_a_question_of_a_turn_that_nobody_wrote_is_answered_by_whoever_asked_for_it(
    rig: Rig, world: World, kind: Kind
) -> None:
    """As shared/tasks makes such mail: its source names nobody."""
    asker = Source("webhook", "c1", user="u1")
    source, event_id = replace(asker, user=None), f"goal:1:{kind}"
    mail = TaskInbound(
        message_id("webhook", "", event_id),
        event_id,
        source,
        "go on",
        received_at=now_ms(),
        purpose=kind,
        owned_by="webhook:u=u1",
        asked_by=asker,
    )
    async with open_provider(answer=by_rows(TEA)) as provider:
        rig.agent = careful(provider)
        await accept(rig.pipe, mail, SessionKey.parse(key_of()))
        await rig.run_turns()
        assert await questions(rig) == ["open"]
        assert await say(rig, "/approve") == "enjoy"
    assert world.charged == ["tea"] and await questions(rig) == ["answered"]


async def test_ag9_a_scheduled_turn_asks_nobody_and_is_denied_at_once(rig: Rig, world: World) -> None:
    asked = ((("charge", "tea"), ("look", "menu")),)
    async with open_provider(answer=by_rows(asked)) as provider:
        rig.agent = careful(provider)
        key = await fired(rig)
    assert world.charged == [] and world.looked == ["menu"] and await questions(rig) == []
    told = [text for role, text in provider.requests[-1].messages if role == "tool"]
    assert sorted(told) == [UNATTENDED, "saw menu"] and (await rig.transcript(key))[-1] == "enjoy"


async def test_ag9_the_question_of_a_scheduled_turn_of_any_agent_is_its_answer(rig: Rig) -> None:
    async def asks(turn: Turn) -> Any:
        yield Ask("q", "Which one?")

    rig.agent = GeneratorAgent(asks)
    key = await fired(rig)
    assert await questions(rig) == [] and (await rig.transcript(key))[-1].endswith("Which one?")


async def test_ag9_what_a_turn_has_used_is_counted_though_its_question_is_its_answer(rig: Rig) -> None:
    async def asks(turn: Turn) -> Any:
        yield Row(
            Entry("assistant", "let me see", data={"usage": {"model": "m", "requests": 1, "input": 5, "output": 2}})
        )
        yield Ask("q", "Which one?")

    rig.agent = GeneratorAgent(asks)
    await fired(rig)
    assert (await rig.pipe.store.usage.of_all()).total == 7


async def fired(rig: Rig) -> str:
    """The conversation of a schedule whose time has come, when its turn has ended."""
    wanted = WantedSchedule("every 1d at 09:00", "buy tea")
    made = await add_schedule(rig.pipe, wanted, Maker("webhook:u=u1", Source("webhook", "c1", user="u1")))
    await run_schedule(rig.pipe, made.id)
    [row] = await ask(rig.pipe.store, "SELECT session_key FROM inbox")
    await rig.run_turns(row["session_key"])
    return str(row["session_key"])
