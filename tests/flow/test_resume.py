"""Moving between conversations: /resume, /sessions, /branch. Names begin with the rows of the behaviour tables they hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from shared.door import accept
from shared.errors import Unavailable
from shared.messages import Inbound
from shared.pipeline import open_pipeline
from shared.settings import Settings
from shared.store.database import Row
from tests.flow.test_commands import Recorder
from tests.store.books import ask, write
from tests.support.pipe import Rig, an_inbound, key_of


@pytest.fixture
def agent(rig: Rig) -> Recorder:
    rig.agent = Recorder()
    return rig.agent


async def say(rig: Rig, text: str, *, chat: str = "c1", user: str | None = "u1", **about: Any) -> str:
    """Send a message as somebody, run its turn, and give back the reply."""
    inbound: Inbound = an_inbound(text, chat=chat, **about)
    inbound = replace(inbound, source=replace(inbound.source, user=user))
    accepted = await accept(rig.pipe, inbound)
    await rig.run_turns(accepted.session_key)
    return (await rig.pipe.store.outbox.open_parts(f"to:webhook:{chat}", 1000))[-1].text


async def here(rig: Rig, chat: str = "c1") -> Row:
    row = await rig.pipe.store.sessions.find(key_of(chat))
    assert row is not None
    return row


async def titled(rig: Rig, *titles: str, chat: str = "c1", user: str = "u1") -> list[str]:
    """Conversations of these titles, one after another, and a fresh one at the end; their ids."""
    ids = []
    for title in titles:
        await say(rig, f"about {title}", chat=chat, user=user)
        await say(rig, f"/title {title}", chat=chat, user=user)
        ids.append((await here(rig, chat))["id"])
        await say(rig, "/new", chat=chat, user=user)
    return ids


async def test_W1_resume_on_a_key_that_never_spoke_switches_to_nothing(rig: Rig, agent: Recorder) -> None:
    assert "I know no conversation" in await say(rig, "/resume something")
    assert (await here(rig))["message_count"] == 2  # the command and its answer, in a session of its own
    assert agent.turns == []


async def test_W3_resume_ends_this_session_and_reopens_the_other(rig: Rig, agent: Recorder) -> None:
    [trip] = await titled(rig, "trip")
    before = await here(rig)
    other = await rig.pipe.store.sessions.find(trip)
    assert other is not None and other["end_reason"] == "session_reset"
    assert "“trip”" in await say(rig, "/resume trip")
    left, now = await rig.pipe.store.sessions.find(before["id"]), await here(rig)
    assert left is not None
    assert (left["end_reason"], left["ended_at"] is not None) == ("session_switch", True)
    assert (now["id"], now["ended_at"], now["end_reason"], now["session_key"]) == (trip, None, None, key_of())
    await say(rig, "go on")
    assert [e.text for e in agent.turns[-1].history if not e.data.get("command")] == ["about trip", "answer 1"]


async def test_W4_resume_with_the_database_away_changes_nothing_and_is_answered_when_it_is_back(
    rig: Rig, agent: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older gateway said "unavailable". Here nothing can be said without the store, so the command waits for it."""
    [trip] = await titled(rig, "trip")
    before = await here(rig)

    async def away(*_: object, **__: object) -> None:
        raise Unavailable("no database")

    accepted = await rig.accept("/resume trip")
    with monkeypatch.context() as patch:
        patch.setattr(rig.pipe.store.owned, "newest", away)
        lease = await rig.lease()
        with pytest.raises(Unavailable):
            await rig.turns(lease)
        assert (await here(rig))["id"] == before["id"]
        await lease.release(spent=False)
    await rig.run_turns()
    row = await rig.pipe.store.journal.find(accepted.id)
    assert row is not None and row["state"] == "answered"
    assert (await here(rig))["id"] == trip


async def test_W5_resume_alone_lists_titled_conversations_but_not_this_one(rig: Rig, agent: Recorder) -> None:
    assert "/title" in await say(rig, "/resume")
    await titled(rig, "one", "two")
    await say(rig, "untitled words")
    await say(rig, "/title three")
    first, second, hint = (await say(rig, "/resume")).splitlines()
    assert first.startswith("1. two (") and second.startswith("2. one (")
    assert "/resume and a number" in hint


async def test_W6_resume_by_number_takes_that_row_of_the_list(rig: Rig, agent: Recorder) -> None:
    ids = await titled(rig, "one", "two", "three")
    assert "“two”" in await say(rig, "/resume 2")
    assert (await here(rig))["id"] == ids[1]


async def test_W7_a_number_beyond_the_list_switches_nothing(rig: Rig, agent: Recorder) -> None:
    await titled(rig, "one")
    before = await here(rig)
    assert "no number 9: the list has 1" in await say(rig, "/resume 9")
    assert (await here(rig))["id"] == before["id"]


async def test_W9_a_conversation_whose_rows_were_superseded_is_resumed_with_those_that_live(
    rig: Rig, agent: Recorder
) -> None:
    """Compressing keeps the session's id here and makes rows inactive, so there is no child to follow to."""
    await say(rig, "one")
    await say(rig, "two")
    await say(rig, "/undo")
    await say(rig, "/title short")
    await say(rig, "/new")
    assert await say(rig, "/resume short") == "Back in “short”, with 2 rows."


async def test_W10_unknown_names_and_the_place_one_is_in_switch_nothing(rig: Rig, agent: Recorder) -> None:
    await say(rig, "hello")
    await say(rig, "/title home")
    before = await here(rig)
    assert "I know no conversation “nowhere”" in await say(rig, "/resume nowhere")
    assert "already" in await say(rig, "/resume HOME")
    assert (await here(rig))["id"] == before["id"]


@pytest.mark.parametrize("form", ["<{}>", "[{}]", '"{}"', "“{}”", "{}"])
async def test_W11_an_id_is_known_out_of_brackets_and_quotes_and_without_a_title(
    rig: Rig, agent: Recorder, form: str
) -> None:
    await say(rig, "hello")
    id = (await here(rig))["id"]
    await say(rig, "/new")
    assert id in await say(rig, f"/resume {form.format(id)}")
    assert (await here(rig))["id"] == id


async def test_W12_what_is_known_of_a_session_stays_with_it(rig: Rig, agent: Recorder) -> None:
    """Overrides are facts of a session here: the key that leaves leaves them behind, and no other key loses any."""
    [trip] = await titled(rig, "trip")
    await say(rig, "hello")
    left = (await here(rig))["id"]
    await say(rig, "elsewhere", chat="c2")
    other = (await here(rig, "c2"))["id"]
    for scope in (left, other):
        await write(rig.pipe.store, "INSERT INTO facts VALUES (:scope, 'model', 'm')", scope=scope)
    await say(rig, "/resume trip")
    loaded, _ = await rig.pipe.store.transcript.load(key_of(), "")
    assert (loaded.id, "model" in loaded.facts) == (trip, False)
    assert (await rig.pipe.store.facts.of(other))["model"] == "m"
    assert (await rig.pipe.store.facts.of(left))["model"] == "m"


async def test_W13_another_users_conversation_is_refused_by_title_by_id_and_to_nobody(
    rig: Rig, agent: Recorder
) -> None:
    [secret] = await titled(rig, "secret", chat="hers", user="her")
    await say(rig, "hello")
    before = await here(rig)
    for name in ("secret", secret, "1"):
        answer = await say(rig, f"/resume {name}")
        assert "I know no conversation" in answer or "no number" in answer
        assert "about" not in answer
    assert "title yet" in await say(rig, "/resume")
    await write(rig.pipe.store, "UPDATE sessions SET owner = NULL WHERE id = :id", id=secret)
    assert "I know no conversation" in await say(rig, f"/resume {secret}", chat="hers", user="her")
    assert (await here(rig))["id"] == before["id"]
    assert "cannot tell who you are" in await say(rig, f"/resume {secret}", chat="nobodys", user=None)
    assert "cannot tell who you are" in await say(rig, "/sessions", chat="nobodys", user=None)


async def test_W13_a_shared_chats_conversation_stays_in_that_chat(make_settings: Callable[..., Settings]) -> None:
    async with open_pipeline(make_settings(group_sessions_per_user=False)) as pipe:
        rig = Rig(pipe)
        group = {"chat": "g1", "chat_type": "group"}
        await say(rig, "among us", user="u1", **group)
        await say(rig, "/title ours", user="u1", **group)
        await say(rig, "/new", user="u1", **group)
        assert "I know no conversation" in await say(rig, "/resume ours", chat="c1", user="u1")
        assert "I know no conversation" in await say(rig, "/resume ours", chat="g2", chat_type="group", user="u1")
        assert "“ours”" in await say(rig, "/resume ours", user="u2", **group)


async def test_a_person_resumes_in_one_chat_what_he_began_in_another(rig: Rig, agent: Recorder) -> None:
    [trip] = await titled(rig, "trip", chat="phone")
    await say(rig, "/resume trip", chat="desk")
    assert (await here(rig, "desk"))["id"] == trip
    await say(rig, "from the desk", chat="desk")
    assert [e.text for e in agent.turns[-1].history if not e.data.get("command")] == ["about trip", "answer 1"]


async def test_W14_sessions_lists_ones_own_and_all_stays_so_without_the_right(rig: Rig, agent: Recorder) -> None:
    await titled(rig, "hers", chat="hers", user="her")
    await titled(rig, "mine")
    await say(rig, "an untitled one")
    for asked in ("/sessions", "/sessions all"):
        answer = await say(rig, asked)
        assert "mine" in answer and "an untitled one" in answer and ", here)" in answer
        assert "hers" not in answer


async def test_W14_an_admin_may_list_everybodys(make_settings: Callable[..., Settings]) -> None:
    async with open_pipeline(make_settings(admin_users=("webhook:root",))) as pipe:
        rig = Rig(pipe)
        await titled(rig, "hers", chat="hers", user="her")
        assert "hers" in await say(rig, "/sessions all", chat="admin", user="root")
        assert "hers" not in await say(rig, "/sessions", chat="admin", user="root")


async def test_W15_search_finds_titles_beyond_the_newest_ten_and_only_ones_own(rig: Rig, agent: Recorder) -> None:
    await titled(rig, "Paris 100%", *(f"other {n}" for n in range(11)))
    await titled(rig, "paris of hers", chat="hers", user="her")
    assert "Paris" not in await say(rig, "/sessions")
    answer = await say(rig, "/sessions search paris")
    assert "Paris 100%" in answer and "hers" not in answer
    assert "No title of yours" in await say(rig, "/sessions search p_ris")
    assert "Use /sessions" in await say(rig, "/sessions search")


async def test_N57_a_branch_outside_of_the_conversation_creates_nothing(rig: Rig, agent: Recorder) -> None:
    assert "nothing to branch" in await say(rig, "/branch", chat="silent")
    await say(rig, "one")
    await say(rig, "two")
    before = await ask(rig.pipe.store, "SELECT COUNT(*) AS n FROM sessions")
    assert "you have spoken 2 times" in await say(rig, "/branch -1")
    assert "you have spoken 2 times" in await say(rig, "/branch 3")
    assert await ask(rig.pipe.store, "SELECT COUNT(*) AS n FROM sessions") == before
    original = await here(rig)
    await say(rig, "/branch 2")
    copy = await here(rig)
    assert (copy["parent_id"], copy["id"] != original["id"]) == (original["id"], True)
    await say(rig, "three")
    assert [e.text for e in agent.turns[-1].history if not e.data.get("command")] == [
        "one",
        "answer 1",
        "two",
        "answer 2",
    ]


async def test_a_branch_keeps_as_many_messages_as_it_was_told_and_the_original_stays(rig: Rig, agent: Recorder) -> None:
    for text in ("one", "two", "three"):
        await say(rig, text)
    await say(rig, "/title original")
    original = await here(rig)
    await say(rig, "/branch 1")
    await say(rig, "another two")
    assert [e.text for e in agent.turns[-1].history if not e.data.get("command")] == ["one", "answer 1"]
    await say(rig, "/resume original")
    assert (await here(rig))["id"] == original["id"]
    await say(rig, "four")
    assert [e.text for e in agent.turns[-1].history if not e.data.get("command")][-2:] == ["three", "answer 3"]


async def test_N58_a_branch_inherits_neither_goal_nor_title_and_a_summary_only_with_what_it_tells_of(
    rig: Rig, agent: Recorder
) -> None:
    for text in ("one", "two", "three"):
        await say(rig, text)
    await say(rig, "/title original")
    session = (await here(rig))["id"]
    for name, value in (("goal", "g"), ("summary", "one and two"), ("consolidated", "4")):
        await write(rig.pipe.store, "INSERT INTO facts VALUES (:id, :name, :value)", id=session, name=name, value=value)
    await say(rig, "/branch 3")
    whole = await here(rig)
    assert whole["title"] is None
    assert await rig.pipe.store.facts.of(whole["id"]) == {"summary": "one and two", "consolidated": "4"}
    await say(rig, "/resume original")
    await say(rig, "/branch 1")
    inside = await here(rig)
    assert inside["id"] != session
    assert await rig.pipe.store.facts.of(inside["id"]) == {}
    assert "called" not in await say(rig, "/title")


async def test_U3_undo_and_retry_that_cannot_be_kept_leave_everything_and_call_no_model(
    rig: Rig, agent: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are superseded by the commit that also keeps the new answer: without it, nothing has happened."""
    await say(rig, "keep")
    before = await rig.pipe.store.sessions.messages((await here(rig))["id"], 100)

    async def away(*_: object, **__: object) -> None:
        raise Unavailable("no database")

    for command in ("/undo", "/retry"):
        await rig.accept(command)
        with monkeypatch.context() as patch:
            patch.setattr(rig.pipe.store.transcript, "last_said", away)
            lease = await rig.lease()
            with pytest.raises(Unavailable):
                await rig.turns(lease)
            await lease.release(spent=False)
        assert await rig.pipe.store.sessions.messages((await here(rig))["id"], 100) == before
        assert len(agent.turns) == 1
        await write(rig.pipe.store, "UPDATE inbox SET state = 'expired' WHERE state = 'pending'")
        await rig.run_turns()


async def test_U5_rows_that_were_archived_before_survive_a_retry(rig: Rig, agent: Recorder) -> None:
    await say(rig, "archived")
    session = (await here(rig))["id"]
    await write(rig.pipe.store, "UPDATE messages SET active = 0 WHERE session_id = :id", id=session)
    await say(rig, "retry me")
    await say(rig, "/retry")
    rows = await rig.pipe.store.sessions.messages(session, 100)
    assert [(r["text"], r["active"]) for r in rows] == [
        ("archived", 0),
        ("answer 1", 0),
        ("retry me", 0),
        ("answer 2", 0),
        ("retry me", 1),
        ("answer 3", 1),
    ]


async def test_resume_by_name_takes_the_newest_of_its_numbered_continuations(rig: Rig, agent: Recorder) -> None:
    first, second, third, other = await titled(rig, "Trip", "Trip #2", "trip #3", "Trip #4 and more")
    await titled(rig, "100% sure_!", "100% sure_! #2", "100x sureX! #3")
    await say(rig, "/resume TRIP")
    assert (await here(rig))["id"] == third
    await say(rig, "/resume Trip #2")
    assert (await here(rig))["id"] == second
    await say(rig, f"/resume {first}")
    assert (await here(rig))["id"] == first
    await say(rig, "/resume Trip #4 and more")
    assert (await here(rig))["id"] == other
    assert "“100% sure_! #2”" in await say(rig, "/resume 100% sure_!")


@pytest.mark.parametrize(("leaves", "joined"), [("/new", ["desk"]), ("/whoami", ["desk", "phone"])])
async def test_the_chat_that_began_a_conversation_counts_as_in_it_only_until_it_leaves(
    rig: Rig, agent: Recorder, leaves: str, joined: list[str]
) -> None:
    """Whoever is in a conversation with others pays for a lock."""
    await say(rig, "hello", chat="phone")
    await say(rig, "/title trip", chat="phone")
    trip = (await here(rig, "phone"))["id"]
    await say(rig, leaves, chat="phone")
    await say(rig, "/resume trip", chat="desk")
    facts = await rig.pipe.store.facts.of(trip)
    keys = sorted(name.removeprefix("joined:") for name in facts if name.startswith("joined:"))
    assert keys == [key_of(chat) for chat in joined]


@pytest.mark.parametrize(("length", "shown"), [(60, "x" * 60), (61, "x" * 59 + "…")])
@pytest.mark.parametrize("command", ["/sessions", "/resume"])
async def test_a_list_shows_the_beginning_of_a_long_title(
    rig: Rig, agent: Recorder, command: str, length: int, shown: str
) -> None:
    await titled(rig, "x" * length)
    [line] = [line for line in (await say(rig, command)).splitlines() if "xxx" in line]
    assert line.removeprefix("1. ").startswith(f"{shown} (2")


async def test_what_is_not_found_is_said_with_the_beginning_of_what_was_looked_for(rig: Rig, agent: Recorder) -> None:
    await titled(rig, "trip")
    long = "y" * 70
    assert await say(rig, f"/resume {long}") == (
        f"I know no conversation “{'y' * 60}” of yours. Send /resume for those with a title."
    )
    assert await say(rig, f"/sessions search {long}") == f"No title of yours has “{'y' * 60}” in it."
    number = "12345678901234567890123"
    assert await say(rig, f"/resume {number}") == (
        f"There is no number {number[:20]}: the list has 1. Send /resume to see it."
    )
    for wrong in ("/sessions trip", "/sessions search", "/sessions all trip"):
        assert await say(rig, wrong) == "Use /sessions, or /sessions search <words of a title>."
    assert await say(rig, "/resume", chat="other", user="u2") == (
        "None of your conversations has a title yet. Give one with /title, and it can be resumed by it."
    )


async def test_the_session_that_resume_leaves_is_looked_at_for_memory(rig: Rig, agent: Recorder) -> None:
    [trip] = await titled(rig, "trip")
    await say(rig, "my sister is called Ann")
    left = (await here(rig))["id"]
    await say(rig, "/resume trip")
    flushes = await ask(rig.pipe.store, "SELECT session_id, state FROM flushes ORDER BY session_id")
    assert {"session_id": left, "state": "due"} in flushes
    await say(rig, f"/resume {left}")  # what goes on is not over
    assert (await here(rig))["id"] == left
    assert (await rig.pipe.store.memory.standing(left)) is not None
    assert {row["session_id"] for row in await ask(rig.pipe.store, "SELECT session_id FROM flushes")} == {left, trip}


async def test_a_title_that_exists_or_is_too_long_is_refused_with_the_reason(rig: Rig, agent: Recorder) -> None:
    await titled(rig, "Trip")
    await say(rig, "hello")
    for asked in ("/title trip", "/branch TRIP"):
        assert "Another of your conversations is called" in await say(rig, asked)
    for asked in ("/title ", "/branch "):
        answer = await say(rig, asked + "x" * 150)
        assert answer == "A title has at most 100 characters; this one has 150."
    assert (await here(rig))["title"] is None
    assert await ask(rig.pipe.store, "SELECT COUNT(*) AS n FROM sessions WHERE title IS NOT NULL") == [{"n": 1}]
    await say(rig, "/title other", chat="hers", user="her")
    assert "called “Trip” now" in await say(rig, "/title Trip", chat="hers", user="her")  # another's does not count
    assert "called “mine” now" in await say(rig, "/title mine")
    assert "called “Mine” now" in await say(rig, "/title Mine")  # one's own title may be written anew


async def test_what_sessions_lists_is_resumed_by_what_it_shows(rig: Rig, agent: Recorder) -> None:
    """By the words, cut or not, by the id, and by the whole line."""
    [long] = await titled(rig, "a title of many words that does not fit into a line of the list at all, really")
    [odd] = await titled(rig, "[draft] “plan”")
    await say(rig, "an untitled one that begins with many words and is cut where the list has no more room")
    untitled = (await here(rig))["id"]
    await say(rig, "/new")
    for id in (long, odd, untitled):
        lines = (await say(rig, "/sessions")).splitlines()
        [line] = [line for line in lines if line.endswith(id)]
        for shown in (line.rpartition(" (")[0], line.rpartition(" · ")[2], line):
            await say(rig, "/new")
            assert "Back in" in await say(rig, f"/resume {shown}")
            assert (await here(rig))["id"] == id


async def test_in_a_group_sessions_and_resume_list_only_what_was_said_there(
    make_settings: Callable[..., Settings],
) -> None:
    async with open_pipeline(make_settings(admin_users=("webhook:u1",))) as pipe:
        rig = Rig(pipe)
        rig.agent = Recorder()
        group = {"chat": "G1", "chat_type": "group"}
        await titled(rig, "my illness")
        await say(rig, "private words")
        await say(rig, "in another group", chat="g1", chat_type="group")
        await say(rig, "hers among us", user="her", **group)
        await say(rig, "/title hers", user="her", **group)
        await say(rig, "among us", **group)
        await say(rig, "/title ours", **group)
        await say(rig, "/new", **group)
        for asked in ("/sessions", "/sessions all", "/sessions search i", "/sessions all search i", "/resume"):
            answer = await say(rig, asked, **group)
            assert "illness" not in answer and "private" not in answer and "another group" not in answer, asked
        assert "ours" in await say(rig, "/sessions", **group)
        assert "hers" in await say(rig, "/sessions all", **group)
        assert "1. ours" in await say(rig, "/resume", **group)
        assert "illness" in await say(rig, "/sessions") and "ours" in await say(rig, "/sessions")


async def test_the_first_words_in_sessions_are_those_of_a_message_and_not_of_a_command(
    rig: Rig, agent: Recorder
) -> None:
    await say(rig, "/whoami")
    await say(rig, "real words")
    answer = await say(rig, "/sessions")
    assert "real words (" in answer and "whoami" not in answer


async def test_a_session_begun_by_new_belongs_to_whoever_began_it(make_settings: Callable[..., Settings]) -> None:
    """Two people in one DM, by way of the webhook: the second one's /new opens a conversation of the second one's."""
    async with open_pipeline(make_settings()) as pipe:
        rig = Rig(pipe)
        await say(rig, "hello", user="u1")
        assert (await ask(pipe.store, "SELECT owner FROM sessions")) == [{"owner": "webhook:u=u1"}]
        await say(rig, "/new", user="u2")
        session = await here(rig)
        [row] = await ask(pipe.store, "SELECT owner FROM sessions WHERE id = :id", id=session["id"])
        assert row["owner"] == "webhook:u=u2"


async def test_every_number_of_the_list_leads_to_its_conversation_and_no_other_number_does(
    rig: Rig, agent: Recorder
) -> None:
    await titled(rig, "one", "two", "three")
    for number in ("0", "-1", "4"):
        assert f"There is no number {number}: the list has 3." in await say(rig, f"/resume {number}")
    listed = (await say(rig, "/resume")).splitlines()
    assert [line.partition(" (")[0] for line in listed[:3]] == ["1. three", "2. two", "3. one"]
    assert "“three”" in await say(rig, "/resume 1")
    assert "“one”" in await say(rig, "/resume 2")  # two and one are listed: this one is not
