"""The slash commands. Names begin with the row of the behaviour tables that a test holds, where there is one."""

from __future__ import annotations

import pytest

from shared.agent.turn import Result, Turn
from tests.support.pipe import Rig, key_of
from workers.agents.results import answered
from workers.commands import number, parse


class Recorder:
    """Answers with a count, and remembers what it was given."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []

    async def run(self, turn: Turn) -> Result:
        self.turns.append(turn)
        return answered(f"answer {len(self.turns)}")

    def heard(self) -> list[str]:
        return [turn.mail[0].text for turn in self.turns]


@pytest.fixture
def agent(rig: Rig) -> Recorder:
    rig.agent = Recorder()
    return rig.agent


async def say(rig: Rig, text: str) -> str:
    """Send a message, run its turn, and give back the reply."""
    await rig.accept(text)
    await rig.run_turns()
    return (await rig.pipe.store.outbox.open_parts("to:webhook:c1", 1000))[-1].text


async def active_rows(rig: Rig) -> list[str]:
    row = await rig.pipe.store.sessions.find(key_of())
    assert row is not None
    return [m["text"] for m in await rig.pipe.store.sessions.messages(row["id"], 1000) if m["active"]]


async def test_N85_a_typo_gets_a_suggestion_and_the_model_is_not_called(rig: Rig, agent: Recorder) -> None:
    assert "/new" in await say(rig, "/neaw")
    assert "takes no arguments" in await say(rig, "/status now")
    assert "/help" in await say(rig, "/totally-unknown")
    assert agent.turns == []


@pytest.mark.parametrize("text", ["/start", "/start@some_bot", "/start from_a_link"])
async def test_Q11_start_is_answered_with_nothing_and_leaves_nothing_to_show(
    rig: Rig, agent: Recorder, text: str
) -> None:
    accepted = await rig.accept(text)
    await rig.run_turns()
    row = await rig.pipe.store.journal.find(accepted.id)
    assert row is not None and (row["state"], row["reason"]) == ("answered", None)
    assert await rig.pipe.store.outbox.open_parts("to:webhook:c1", 10) == [] and agent.turns == []
    assert "/start" not in await say(rig, "/help")
    await say(rig, "hello")
    assert [entry for entry in agent.turns[0].history if not entry.data.get("command")] == []


@pytest.mark.parametrize("text", ["/NEW", "  /new  ", "/new@some_bot", "/reset"])
def test_N86_a_command_is_known_in_any_case_padded_or_addressed(text: str) -> None:
    assert parse(text) in {("new", ""), ("reset", "")}


@pytest.mark.parametrize("text", ["/etc/passwd", "hello /new", "/", "//new", "1/2"])
def test_what_only_looks_like_a_command_is_for_the_agent(text: str) -> None:
    assert parse(text) is None


async def test_new_ends_the_session_and_the_next_message_starts_with_no_history(rig: Rig, agent: Recorder) -> None:
    await say(rig, "one")
    before = await rig.pipe.store.sessions.find(key_of())
    await say(rig, "/new")
    await say(rig, "two")
    after = await rig.pipe.store.sessions.find(key_of())
    assert before is not None
    assert after is not None
    assert after["parent_id"] == before["id"]
    ended = await rig.pipe.store.sessions.find(before["id"])
    assert ended is not None
    assert (ended["end_reason"], ended["ended_at"] is not None) == ("session_reset", True)
    assert agent.turns[1].history == ()
    assert await active_rows(rig) == ["two", "answer 2"]


async def test_a_burst_around_new_keeps_its_order_under_one_lease(rig: Rig, agent: Recorder) -> None:
    for text in ("one", "/new", "two", "/title second", "three"):
        await rig.accept(text)
    await rig.run_turns()
    assert agent.heard() == ["one", "two", "three"]
    assert [e.text for e in agent.turns[2].history if not e.data.get("command")] == ["two", "answer 2"]
    row = await rig.pipe.store.sessions.find(key_of())
    assert row is not None
    assert row["title"] == "second"


async def test_U1_retry_answers_the_last_words_again_as_if_nothing_had_followed(rig: Rig, agent: Recorder) -> None:
    await say(rig, "first")
    await say(rig, "retry me")
    assert await say(rig, "/retry") == "answer 3"
    assert agent.heard() == ["first", "retry me", "retry me"]
    assert [e.text for e in agent.turns[2].history] == ["first", "answer 1"]
    assert await active_rows(rig) == ["first", "answer 1", "retry me", "answer 3"]


async def test_U2_retry_twice_leaves_one_copy_and_keeps_the_rest_inactive(rig: Rig, agent: Recorder) -> None:
    await say(rig, "retry me")
    await say(rig, "/retry")
    await say(rig, "/retry")
    assert await active_rows(rig) == ["retry me", "answer 3"]
    assert len(await rig.transcript()) == 6


async def test_U7_undo_removes_from_the_last_words_on_and_says_how_much(rig: Rig, agent: Recorder) -> None:
    await say(rig, "keep")
    await say(rig, "forget this")
    assert await say(rig, "/undo") == "Took back 2 rows, from “forget this” on."
    await say(rig, "next")
    assert [e.text for e in agent.turns[2].history if not e.data.get("command")] == ["keep", "answer 1"]


async def test_undo_does_not_count_the_commands_that_came_between(rig: Rig, agent: Recorder) -> None:
    await say(rig, "forget this")
    await say(rig, "/whoami")
    await say(rig, "/help")
    assert await say(rig, "/undo") == "Took back 2 rows, from “forget this” on."


async def test_undo_and_retry_say_so_when_there_is_nothing(rig: Rig, agent: Recorder) -> None:
    assert "nothing to undo" in await say(rig, "/undo")
    assert "nothing to retry" in await say(rig, "/retry")
    assert agent.turns == []


async def test_status_title_help_and_whoami_answer_without_the_model(rig: Rig, agent: Recorder) -> None:
    assert "no title" in await say(rig, "/title")
    assert "called “My trip”" in await say(rig, "/title  My\n trip")
    assert "“My trip”" in await say(rig, "/status")
    assert "/undo" in await say(rig, "/help")
    assert "u1" in await say(rig, "/whoami")
    assert agent.turns == []


async def test_help_shows_every_command_with_what_it_takes(rig: Rig) -> None:
    takes = {
        "branch": "[title, or how many messages to keep]",
        "answer": "[number] ANSWER",
        "approve": "[number]",
        "background": "<text>",
        "btw": "<text>",
        "compress": "[topic | here N]",
        "deny": "[number]",
        "goal": "[text|done|blocked|clear]",
        "memory": "[forget N | forget all]",
        "model": "[name|default]",
        "queue": "[mode NAME]",
        "resume": "[number, title or id]",
        "search": "words",
        "sessions": "[search words]",
        "steer": "TEXT",
        "title": "[title]",
    }
    nothing = ("help", "new", "platforms", "retry", "status", "stop", "undo", "usage", "whoami")
    lines = (await say(rig, "/help")).splitlines()
    assert [line.partition(" — ")[0] for line in lines] == sorted(
        [f"/{name} {args}" for name, args in takes.items()] + [f"/{name}" for name in nothing]
    )
    assert all(line.partition(" — ")[2] for line in lines)


@pytest.mark.parametrize(("alias", "name"), [("commands", "help"), ("reset", "new"), ("fork", "branch")])
async def test_a_command_is_known_by_its_other_name_too(rig: Rig, alias: str, name: str) -> None:
    said = [await say(rig, "hello"), await say(rig, f"/{alias}"), await say(rig, f"/{name}")]
    assert said[1] == said[2] and "do not know" not in said[1]


async def test_a_command_for_admins_is_refused_to_others_and_not_shown_to_them(rig: Rig) -> None:
    assert await say(rig, "/sethome") == "/sethome is for admins here."
    assert "sethome" not in await say(rig, "/help")


async def test_who_asks_is_told_who_they_are(rig: Rig) -> None:
    assert await say(rig, "/whoami") == "You are u1 on webhook, in dm c1."
    await rig.accept("/whoami", user_name="Ann")
    await rig.run_turns()
    last = (await rig.pipe.store.outbox.open_parts("to:webhook:c1", 1000))[-1]
    assert last.text == "You are u1 (Ann) on webhook, in dm c1."


@pytest.mark.parametrize(("length", "shown"), [(40, "x" * 40), (41, "x" * 39 + "…")])
async def test_undo_shows_the_beginning_of_what_it_took_back(rig: Rig, length: int, shown: str) -> None:
    await say(rig, "x" * length)
    assert await say(rig, "/undo") == f"Took back 2 rows, from “{shown}” on."


async def test_a_title_is_kept_up_to_its_limit(rig: Rig) -> None:
    assert "at most 100 characters; this one has 101" in await say(rig, f"/title {'x' * 101}")
    assert "This conversation is called" in await say(rig, f"/title {'x' * 100}")
    assert await say(rig, "/title") == f"“{'x' * 100}”"
    assert await say(rig, "/title \u200b") == "That is no title."


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("0", 0),
        ("12", 12),
        ("-3", -3),
        ("٣", 3),
        ("123456789", 123_456_789),
        ("1234567890", 10**9),
        ("-9999999999", -(10**9)),
        ("", None),
        ("-", None),
        ("1.5", None),
        ("²", None),
        ("three", None),
    ],
)
def test_a_number_is_read_as_people_write_it(text: str, meant: int | None) -> None:
    assert number(text) == meant
