"""Schedules, questions, people and stage times on the dashboard: what the pages show, and what their forms do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import orjson
import pytest

from keyturn.dashboard import forgetting, watch
from keyturn.dashboard.access import Role
from keyturn.dashboard.pages import people
from shared.clock import now_ms
from shared.door import accept
from shared.operating.forgetting import ForgetProgress, ForgottenPerson, Tell
from shared.operating.schedules import WantedSchedule, add_schedule
from shared.person import Person
from shared.pipeline import Pipeline
from shared.reading.audit import audit_log
from shared.reading.person import export_person, kept_of_person
from shared.reading.schedules import listed_schedules, one_schedule
from shared.reading.stage_times import MESSAGES, stage_times
from tests.flow.test_asking import TEA, careful, last_told, questions, say
from tests.flow.test_cli import Cli
from tests.flow.test_cli import cli as cli  # a fixture
from tests.flow.test_cli import environment as environment
from tests.flow.test_cli import lone_cli as lone_cli
from tests.flow.test_steps import by_rows
from tests.store.books import ask, write
from tests.support import counted
from tests.support.counted import World
from tests.support.dashboard import SAME_ORIGIN, Page, Visitor, visiting
from tests.support.openai import open_provider
from tests.support.pipe import Rig, an_inbound, key_of
from workers.agents.tools.approval import NO_ANSWER
from workers.upkeep.asks import OverdueQuestions

DAILY = WantedSchedule("every 1d at 09:00", "read the secret diary", ("local",), "Diary")


@pytest.fixture
async def admin(pipe: Pipeline) -> AsyncIterator[Visitor]:
    async with visiting(pipe) as visitor:
        await visitor.enter(Role.ADMIN)
        yield visitor


@pytest.fixture
async def viewer(pipe: Pipeline) -> AsyncIterator[Visitor]:
    async with visiting(pipe) as visitor:
        await visitor.enter(Role.VIEW)
        yield visitor


async def done(pipe: Pipeline) -> list[tuple[str, str, str]]:
    """What the audit log says, oldest first."""
    return [(row.action, row.target, row.outcome) for row in reversed(await audit_log(pipe.store, 50))]


# -- schedules


async def test_a_schedule_is_added_by_a_form_that_checks_as_the_command_does(rig: Rig, admin: Visitor) -> None:
    empty = {"name": "", "missed": "skip", "overlap": "queue", "window": ""}
    wrong = {
        "is no duration": {"when": "every now and then", "text": "hello", "to": "local"},
        "there is no platform": {"when": "@daily", "text": "hello", "to": "pigeon:42"},
        "1 to 10,000 characters": {"when": "@daily", "text": " ", "to": "local"},
        "whole number of seconds": {"when": "@daily", "text": "hello", "to": "local", "window": "soon"},
    }
    for reason, fields in wrong.items():
        answer = await admin.post("/schedules/add", **{**empty, **fields})
        page = Page(answer.text)
        assert answer.status_code == 409 and "Nothing was added" in page.text and reason in page.text
        assert ("hello" in page.html) == (fields["text"] == "hello")  # what was written is not lost
    assert await listed_schedules(rig.pipe.store, 10) == ()
    form = {**empty, "when": "every 2h", "text": "look\r\nagain", "to": "local, origin", "window": "60", "once": "abc"}
    for _ in range(2):  # sent twice by a person in a hurry
        page = await admin.act("/schedules/add", **form)
    [added] = await listed_schedules(rig.pipe.store, 10)
    assert (added.text, added.to, added.missed, added.overlap) == ("look\nagain", ("local", "origin"), "skip", "queue")
    assert "The schedule is kept." in page.text and added.id in page.text
    assert (await done(rig.pipe))[-1] == ("add schedule", "without a name", "done")


async def test_a_schedule_is_paused_resumed_run_and_removed(rig: Rig, admin: Visitor) -> None:
    id = (await add_schedule(rig.pipe, DAILY)).id
    store = rig.pipe.store
    page = await admin.press(await admin.page("/schedule", id=id), "Pause")
    assert "Paused: by hand." in page.text and "Run now" in page.text
    page = await admin.press(page, "Resume")
    assert "The schedule goes on at" in page.text
    page = await admin.press(page, "Run now")
    [slot] = (await one_schedule(store, id, 5)).slots
    assert slot.by_hand and slot.id is not None and slot.id in page.text  # its trace
    await rig.run_turns(f"agent:main:schedule:dm:{id}")
    assert [one.outcome for one in (await one_schedule(store, id, 5)).slots] == ["answered"]
    page = await admin.press(await admin.page("/schedule", id=id), "Remove…")
    assert "will be gone for good" in page.text and len(await listed_schedules(store, 5)) == 1
    page = await admin.press(page, "Remove it for good")
    assert "There is no schedule." in page.text and await listed_schedules(store, 5) == ()
    names = ["pause schedule", "resume schedule", "run schedule", "remove schedule"]
    assert await done(rig.pipe) == [(name, id, "done") for name in names]


async def test_the_list_of_schedules_says_when_they_run_next_and_how_their_last_slots_ended(
    rig: Rig, admin: Visitor
) -> None:
    id = (await add_schedule(rig.pipe, DAILY)).id
    await add_schedule(rig.pipe, replace(DAILY, when="@weekly", name="Other"))
    await write(
        rig.pipe.store,
        "INSERT INTO schedule_fires (schedule_id, slot, manual, state, reason, created_at)"
        " VALUES (:id, 1, 0, 'skipped', 'overlap', 1), (:id, 2, 0, 'missed', 'late', 1)",
        id=id,
    )
    page = await admin.page("/schedules")
    assert "Diary" in page.text and "Other" in page.text and "none yet" in page.text
    labels = [values.get("aria-label", "") for _, values in page.elements]
    assert "the newest first: missed, skipped" in labels
    assert "in " in page.text and "by the clocks of" in page.text
    await admin.act("/schedule/pause", id=id)
    assert "Other" not in (await admin.page("/schedules", state="paused")).text


async def test_what_a_schedule_asks_is_hidden_until_asked_for_and_never_shown_to_the_role_view(
    rig: Rig, admin: Visitor, viewer: Visitor
) -> None:
    id = (await add_schedule(rig.pipe, DAILY)).id
    page = await admin.page("/schedule", id=id)
    assert DAILY.text not in page.html
    assert DAILY.text in (await admin.press(page, "Show what the agent is asked")).text
    assert await done(rig.pipe) == [("read schedule", id, "done")]
    for seen in (await viewer.page("/schedules"), await viewer.page("/schedule", id=id)):
        assert id in seen.html and DAILY.text not in seen.html and DAILY.name not in seen.html
        assert [form.action for form in seen.forms if form.action.startswith("/schedule")] == []


async def test_a_schedule_that_cannot_be_read_is_listed_and_can_be_removed(rig: Rig, admin: Visitor) -> None:
    id = (await add_schedule(rig.pipe, DAILY)).id
    await write(rig.pipe.store, "UPDATE schedules SET rule = 'by the moon'")
    page = await admin.page("/schedules")
    assert id in page.text and "unreadable" in page.text
    page = await admin.press(await admin.press(page, "Remove…"), "Remove it for good")
    assert "There is no schedule." in page.text


async def test_long_lists_of_schedules_and_questions_come_in_pages(rig: Rig, viewer: Visitor) -> None:
    store, kept = rig.pipe.store, [await add_schedule(rig.pipe, DAILY) for _ in range(51)]
    await write(store, "UPDATE schedules SET created_at = 5")  # of one millisecond: ordered by id
    await write(
        store,
        """INSERT INTO asks (id, run_id, session_key, session_id, name, text, choices, is_approval, source, state, answer,
           created_at) SELECT 'ask_' || id || '_000', 'run', 'agent:main:local:dm:c', 's', 'n', 'which?', '[]', 0, 'broken', 'open', '', 5
           FROM schedules""",
    )
    for room, one, ids in (
        ("/schedules", "/schedule", [schedule.id for schedule in kept]),
        ("/questions", "/question", [f"ask_{schedule.id}_000" for schedule in kept]),
    ):
        seen: set[str] = set()
        page = await viewer.page(room)
        for _ in range(2):
            links = [values.get("href", "") for tag, values in page.elements if tag == "a"]
            seen |= {link.partition("=")[2] for link in links if link.startswith(f"{one}?id=")}
            older = [values["href"] for tag, values in page.elements if values.get("rel") == "next"]
            page = await viewer.page(older[0]) if older else page
        assert seen == set(ids), room


# -- questions


@pytest.fixture
def world() -> World:
    return counted.new_world()


async def test_a_question_is_listed_with_its_tool_and_its_arguments_are_shown_on_request_only(
    rig: Rig, world: World, admin: Visitor, viewer: Visitor
) -> None:
    async with open_provider(answer=by_rows(TEA)) as provider:
        rig.agent = careful(provider)
        await say(rig, "tea please")
    [row] = await ask(rig.pipe.store, "SELECT id FROM asks")
    for visitor in (admin, viewer):
        assert "1" in (await visitor.page("/")).text
        listed = await visitor.page("/questions")
        assert "charge" in listed.text and key_of() in listed.text and "webhook:u1" in listed.text
        on_its_page = await visitor.page("/conversation", key=key_of())
        assert "It waits for a person's answer" in on_its_page.text and "approval 1" in on_its_page.text
        assert not any("tea" in page.text for page in (listed, on_its_page))
    page = await admin.page("/question", id=row["id"])
    assert "Waits for webhook:u1 before charge may run" in page.text and "tea" not in page.text
    assert '{"what":"tea"}' in (await admin.press(page, "Show what is asked")).text
    assert await done(rig.pipe) == [("read question", row["id"], "done")]


async def test_a_withdrawn_question_ends_as_one_whose_time_is_over_and_its_tool_does_not_run(
    rig: Rig, world: World, admin: Visitor
) -> None:
    async with open_provider(answer=by_rows(TEA)) as provider:
        rig.agent = careful(provider, approval_seconds=3600)
        await say(rig, "tea please")
        [row] = await ask(rig.pipe.store, "SELECT id FROM asks")
        page = await admin.press(await admin.page("/question", id=row["id"]), "Withdraw the question")
        assert "The question is withdrawn." in page.text and "ending" in page.text
        again = await admin.post("/question/withdraw", id=row["id"])
        assert again.status_code == 409 and "being ended already" in again.text
        assert (await say(rig, "/approve")).startswith("That question has expired")  # it came after
        await OverdueQuestions(rig.pipe).look()
        await rig.run_turns()
        assert provider.requests[-1].last == NO_ANSWER and await last_told(rig) == "enjoy"
    assert await questions(rig) == ["expired"] and world.charged == []
    assert (await admin.get("/question", id=row["id"])).status_code == 404
    outcomes = [(action, outcome.partition(":")[0]) for action, _, outcome in await done(rig.pipe)]
    assert outcomes == [("withdraw question", "done"), ("withdraw question", "failed")]


async def test_commands_list_show_and_withdraw_questions(rig: Rig, world: World, cli: Cli) -> None:
    async with open_provider(answer=by_rows(TEA)) as provider:
        rig.agent = careful(provider)
        await say(rig, "tea please")
    [listed] = (await cli("questions", "list", "--json")).json
    assert (listed["tools"], listed["asked"], "text" in listed) == (["charge"], "webhook:u1", False)
    assert "charge" in (await cli("questions", "list")).out
    assert '"what":"tea"' in (await cli("questions", "show", listed["id"])).out
    assert (await cli("questions", "withdraw", listed["id"], "--json")).json["state"] == "withdrawn"
    failed = await cli("questions", "withdraw", listed["id"])
    assert failed.code == 1 and "being ended already" in failed.err
    assert [row[0] for row in await done(rig.pipe)] == ["withdraw question"] * 2


# -- people

ANN = Person("webhook", "u1")
NAME = "webhook:u1"


async def ann_talks(rig: Rig) -> None:
    await rig.accept("my secret")
    await rig.run_turns()
    await rig.accept("and more")


async def test_a_person_is_counted_first_and_forgotten_when_their_name_is_typed(rig: Rig, admin: Visitor) -> None:
    await ann_talks(rig)
    page = await admin.act("/people/look", person=NAME)
    assert "Nothing has been changed yet." in page.text and "1 would be deleted, with all that was said" in page.text
    assert "2 would be forgotten" in page.text and "Forget them for good" in page.text
    for typed in ("", "webhook:u", "WEBHOOK:U1", "yes"):
        answer = await admin.post("/people/forget", person=NAME, typed=typed)
        assert answer.status_code == 409 and "nothing was done" in answer.text
    assert not (await kept_of_person(rig.pipe.store, ANN)).is_nothing
    page = await admin.act("/people/forget", person=NAME, typed=NAME)
    assert "They are forgotten. No table names them any more." in page.text
    assert (await kept_of_person(rig.pipe.store, ANN)).is_nothing
    assert await ask(rig.pipe.store, "SELECT id FROM sessions") == []
    assert "Nothing is kept of them." in (await admin.press(page, "Look once more")).text
    assert (await admin.post("/people/forget", person=NAME, typed=NAME)).status_code == 404
    rows = await done(rig.pipe)
    assert rows[:2] == [("count person", "webhook", "done"), ("forget person", "webhook", "done")]
    assert not any("u1" in f"{target} {outcome}" for _, target, outcome in rows[:-1])


async def test_an_export_of_a_person_is_that_of_the_command_and_is_in_the_audit_log(rig: Rig, admin: Visitor) -> None:
    await ann_talks(rig)
    answer = await admin.post("/people/export", person=NAME)
    assert answer.headers["content-disposition"].startswith("attachment")
    expected = [line async for line in export_person(rig.pipe.store, ANN)]
    assert answer.content.splitlines() == expected and b"my secret" in answer.content
    assert {orjson.loads(line)["type"] for line in expected} >= {"session", "message", "inbound"}
    assert await done(rig.pipe) == [("export person", "webhook", "done")]
    assert (await admin.post("/people/export", person="webhook:nobody")).status_code == 404


@pytest.mark.parametrize("wrong", ["", "u1", "webhook:", ":u1", "pigeon:u1"])
async def test_a_person_who_is_not_written_as_one_is_refused(admin: Visitor, wrong: str) -> None:
    for path in ("/people/look", "/people/export", "/people/forget"):
        assert (await admin.post(path, person=wrong, typed=wrong)).status_code == 409
    assert await done(admin.pipe) == []


async def test_a_long_forgetting_says_how_far_it_has_come_and_goes_on_when_the_page_is_left(
    rig: Rig, admin: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, begun = asyncio.Event(), 0

    async def slowly(_: Pipeline, person: Person, tell: Tell) -> ForgottenPerson:
        nonlocal begun
        begun += 1
        tell(ForgetProgress("deleting their conversations", 3, 7))
        await go.wait()
        return ForgottenPerson(7, 0, 9, 0, 0, 0, 0, ())

    monkeypatch.setattr(people, "forget_person", slowly)
    monkeypatch.setattr(forgetting, "PATIENCE_SECONDS", 0.05)
    page = await admin.act("/people/forget", person=NAME, typed=NAME)
    assert "deleting their conversations" in page.text and "3 of 7" in page.text
    assert ("div", {"data-go-on": ""}) in page.elements  # with script, the next look follows by itself
    await admin.act("/people/forget", person=NAME, typed=NAME)  # asked for twice: done once
    assert begun == 1 and (await done(rig.pipe))[-1] == ("forget person", "webhook", "begun")
    go.set()
    page = await admin.press(page, "Look again")
    assert "They are forgotten." in page.text and (await done(rig.pipe))[-1][2] == "done"
    lost = await admin.post("/people/forget/follow", run="of-another-process")
    assert lost.status_code == 404 and "doing it again finishes it" in lost.text


async def test_people_are_for_admins_alone(pipe: Pipeline) -> None:
    async with visiting(pipe) as visitor:
        await visitor.enter(Role.OPERATE)
        assert (await visitor.get("/people")).status_code == 403
        links = [values.get("href") for _, values in (await visitor.page("/")).elements]
        assert "/people" not in links and "/settings" not in links
        for path in ("/people/look", "/people/export", "/people/forget", "/people/forget/follow"):
            assert (await visitor.post(path, person=NAME, typed=NAME)).status_code == 403
    assert await done(pipe) == []


async def test_a_dry_run_of_the_command_counts_and_changes_nothing(rig: Rig, cli: Cli) -> None:
    await ann_talks(rig)
    counted = (await cli("sessions", "forget", "--user", NAME, "--dry-run", "--json")).json
    assert (counted["ids"], counted["sessions"], counted["messages"], counted["waiting"]) == (["u1"], 1, 2, 1)
    assert "sessions" in (await cli("sessions", "forget", "--user", NAME, "--dry-run")).out
    assert not (await kept_of_person(rig.pipe.store, ANN)).is_nothing and await done(rig.pipe) == []


# -- how long the stages take


async def test_stage_times_are_those_of_the_messages_that_were_answered_last(rig: Rig, viewer: Visitor) -> None:
    assert await stage_times(rig.pipe.store) == ()
    page = await viewer.page("/")
    assert "No message was answered within the last hour." in page.text
    now = now_ms()
    for n in range(1, 21):  # each twice as slow as half of them, and one very slow
        chat = f"c{n}"
        await accept(rig.pipe, an_inbound(f"hello {n}", chat=chat))
        await rig.run_turns(key_of(chat))
    [*turns] = await ask(rig.pipe.store, "SELECT id FROM turns")
    for n, turn in enumerate(turns, 1):
        agent = 90_000 if n == 20 else n * 100
        await write(
            rig.pipe.store,
            "UPDATE turns SET claimed_at = :now - :agent - 30, started_at = :now - :agent, committed_at = :now WHERE id = :id",
            now=now,
            agent=agent,
            id=turn["id"],
        )
        await write(
            rig.pipe.store,
            "UPDATE inbox SET received_at = :at WHERE turn_id = :id",
            at=now - agent - 80,
            id=turn["id"],
        )
    found = {one.stage: (one.messages, one.p50_ms, one.p95_ms) for one in await stage_times(rig.pipe.store)}
    assert found == {"wait": (20, 50, 50), "load": (20, 30, 30), "agent": (20, 1000, 1900)}  # nothing was sent yet
    await write(rig.pipe.store, "UPDATE outbox SET sending_at = :a, sent_at = :b", a=now + 20, b=now + 15)
    found = {one.stage: (one.messages, one.p50_ms, one.p95_ms) for one in await stage_times(rig.pipe.store)}
    assert found["send"] == (20, 0, 0)  # clocks that differ make no negative time
    assert found["outbox"] == (20, 20, 20) and found["in all"] == (20, 1095, 1995)
    await write(rig.pipe.store, "UPDATE inbox SET finished_at = :at", at=now - 3_700_000)
    assert await stage_times(rig.pipe.store) == ()


async def test_the_overview_forgets_stage_times_when_nothing_was_answered_within_the_hour(
    rig: Rig, viewer: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(watch, "SAMPLE_SECONDS", 0.0)
    await rig.accept("hello")
    await rig.run_turns()
    assert "Half within" in (await viewer.page("/")).text
    await write(rig.pipe.store, "UPDATE inbox SET finished_at = :at", at=now_ms() - 3_700_000)
    page = await viewer.page("/")
    assert "No message was answered within the last hour." in page.text and "Half within" not in page.text


async def test_stage_times_are_on_the_overview_in_status_and_in_top(rig: Rig, admin: Visitor, cli: Cli) -> None:
    await rig.accept("hello")
    await rig.run_turns()
    page = await admin.page("/")
    assert "the agent answers, and the answer is committed" in page.text and "Half within" in page.text
    [wait, *_] = (await cli("status", "--json")).json["stages"]
    assert (wait["stage"], wait["messages"]) == ("wait", 1) and wait["p95_ms"] >= wait["p50_ms"] >= 0
    assert "stage: agent" in (await cli("status")).out
    assert (await cli("top", "--once", "--json")).json["status"]["stages"][0]["stage"] == "wait"
    assert MESSAGES <= 1000  # what a look costs


async def test_a_form_of_a_room_is_refused_from_elsewhere(admin: Visitor) -> None:
    for path in ("/schedules/add", "/question/withdraw", "/people/forget"):
        answer = await admin.client.post(path, data={"person": NAME, "typed": NAME}, headers=SAME_ORIGIN)
        assert answer.status_code == 403  # without the form token
