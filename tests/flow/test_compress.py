"""Compression, asked for and by itself. Names begin with the row of the behaviour tables that a test holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from shared.clock import now_ms
from shared.context.compression import last_prompt_tokens
from shared.errors import Superseded, Unavailable
from shared.messages import Entry
from shared.pipeline import open_pipeline
from shared.settings import Settings
from shared.store.change import NO_CHANGE, Change, Commit
from shared.store.database import Row
from tests.flow.test_commands import active_rows, say
from tests.flow.test_context import system_of
from tests.flow.test_llm import config
from tests.store.books import proof, write
from tests.support import openai
from tests.support.openai import Asked, Provider, Trouble, heard, open_provider
from tests.support.pipe import Rig, key_of
from workers.agents.llm import LlmAgent
from workers.side import compression as compressing
from workers.side.compression import PROMPT, STILL_FULL_NOTE
from workers.turn.take import take_turns

Make = Callable[..., Settings]


def answer(asked: Asked) -> str:
    """Summaries are told from answers by what the model was told."""
    return "THE RECORD" if is_summary(asked) else heard(asked)


def is_summary(asked: Asked) -> bool:
    return asked.messages[0] == ("system", PROMPT)


def summaries(provider: Provider) -> list[str]:
    return [asked.last for asked in provider.requests if is_summary(asked)]


@asynccontextmanager
async def talking(rig: Rig, *troubles: Trouble | None, **llm: Any) -> AsyncIterator[Provider]:
    async with open_provider(*troubles, answer=answer) as provider:
        rig.agent = LlmAgent(config(provider, **llm))
        yield provider


async def seed(rig: Rig, pairs: int, *, prompt: int = 0, words: str = "") -> None:
    """A conversation as turns would have left it; the last answer took a prompt of so many tokens."""
    rows = []
    for n in range(pairs):
        rows += [
            Entry("user", f"q{n} {words}"),
            Entry("assistant", f"a{n} {words}", data={"usage": {"prompt": prompt}}),
        ]
    await commit(rig, *rows)


async def commit(rig: Rig, *rows: Entry, change: Change = NO_CHANGE) -> None:
    """What another writer of the same session would do."""
    transcript = rig.pipe.store.transcript
    session, _ = await transcript.load(key_of(), "")
    await rig.pipe.store.commit(Commit(session, key_of(), proof(), entries=rows, change=change))


async def all_rows(rig: Rig) -> list[Row]:
    row = await rig.pipe.store.sessions.find(key_of())
    assert row is not None
    return await rig.pipe.store.sessions.messages(row["id"], 10_000)


async def facts(rig: Rig) -> dict[str, str]:
    row = await rig.pipe.store.sessions.find(key_of())
    return await rig.pipe.store.facts.of(row["id"]) if row else {}


async def test_N07_compress_keeps_the_last_eight_rows_summarises_the_rest_and_deletes_nothing(rig: Rig) -> None:
    await seed(rig, 10)
    async with talking(rig) as provider:
        assert "Compressed 20 rows to 9" in await say(rig, "/compress")
        [asked] = summaries(provider)
        assert "[user] q0" in asked and "[assistant] a5" in asked and "q6" not in asked
        await say(rig, "and now?")
        sent = provider.requests[-1].messages
        assert "\n## Earlier in this conversation\n" in sent[0][1] and "\n  THE RECORD" in sent[0][1]
        assert [content.strip() for _, content in sent[1:3]] == ["q6", "a6"] and len(sent) == 1 + 8 + 1
        await say(rig, "again")
        assert system_of(provider, -1) == system_of(provider, -2)  # the summary does not move the prompt
    rows = await all_rows(rig)
    assert [row["active"] for row in rows[:20]] == [0] * 12 + [1] * 8
    assert (await facts(rig)) == {"summary": "THE RECORD", "consolidated": "12"}


@pytest.mark.parametrize(("length", "kept"), [(8000, "r" * 8000), (8001, "r" * 7999 + "…")])
async def test_a_summary_is_kept_up_to_its_limit(rig: Rig, length: int, kept: str) -> None:
    await seed(rig, 10)
    async with open_provider(answer=lambda asked: f" {'r' * length}\n") as provider:
        rig.agent = LlmAgent(config(provider))
        assert "Compressed" in await say(rig, "/compress")
    assert (await facts(rig))["summary"] == kept


def tool_turn(name: str, groups: int = 1) -> list[Entry]:
    """A question, calls with their results, and an answer."""
    rows = [Entry("user", f"{name}?")]
    for n in range(groups):
        call = {"id": f"{name}-{n}", "name": "look", "arguments": "{}"}
        rows.append(Entry("assistant", "", data={"tool_calls": [call]}))
        rows.append(Entry("tool", "seen", data={"tool_call_id": call["id"], "name": "look"}))
    return [*rows, Entry("assistant", f"{name}!")]


async def shown(rig: Rig, provider: Provider) -> list[dict[str, Any]]:
    """What the model is shown of the transcript in the next turn."""
    await say(rig, "and now?")
    return [dict(message) for message in provider.requests[-1].body["messages"][1:-1]]


async def test_N06_of_a_partly_summarised_conversation_only_the_new_tool_rows_are_shown(rig: Rig) -> None:
    for turn in range(7):
        await commit(rig, *tool_turn(f"t{turn}"))
    async with talking(rig) as provider:
        await say(rig, "/compress here 2")
        rows = await shown(rig, provider)
    assert rows[0]["content"] == "t5?" and rows[-1]["content"] == "t6!" and len(rows) == 8
    assert [row["tool_call_id"] for row in rows if row["role"] == "tool"] == ["t5-0", "t6-0"]


async def test_N08_the_last_turn_stays_whole_and_is_shown_from_its_question_on(rig: Rig) -> None:
    await seed(rig, 10)
    await commit(rig, *tool_turn("last", groups=5))
    async with talking(rig) as provider:
        await say(rig, "/compress")
        rows = await shown(rig, provider)
    assert rows[0]["content"] == "last?" and rows[-1]["content"] == "last!" and len(rows) == 12


async def test_N25_with_nothing_kept_only_the_summary_is_shown(rig: Rig) -> None:
    await seed(rig, 5)
    async with talking(rig) as provider:
        await say(rig, "/compress here 0")
        assert await shown(rig, provider) == [] and "THE RECORD" in system_of(provider)
    assert [row["active"] for row in (await all_rows(rig))[:10]] == [0] * 10
    assert (await facts(rig))["consolidated"] == "10"


async def test_N34_what_is_summarised_already_is_not_summarised_again(rig: Rig) -> None:
    await seed(rig, 10)
    async with talking(rig) as provider:
        await say(rig, "/compress")
        assert "No changes" in await say(rig, "/compress")
        assert len(summaries(provider)) == 1


async def test_N35_exactly_the_rows_that_no_summary_has_are_summarised(rig: Rig) -> None:
    await seed(rig, 10)
    async with talking(rig) as provider:
        await say(rig, "/compress here 3")
        await say(rig, "/compress here 1")
        _, second = summaries(provider)
    assert [f"q{n} " in second for n in range(10)] == [n in (7, 8) for n in range(10)]


async def idle(rig: Rig, minutes: int) -> None:
    row = await rig.pipe.store.sessions.find(key_of())
    assert row is not None
    past = now_ms() - minutes * 60_000
    await write(rig.pipe.store, "UPDATE sessions SET updated_at = :past WHERE id = :id", past=past, id=row["id"])


async def test_N38_after_a_long_pause_eight_rows_are_shown_and_all_are_stored(make_settings: Make) -> None:
    async with open_pipeline(make_settings(compress_idle_minutes=15)) as pipe:
        rig = Rig(pipe)
        await seed(rig, 6)
        async with talking(rig) as provider:
            await idle(rig, 14)
            assert len(await shown(rig, provider)) == 12 and summaries(provider) == []
            await idle(rig, 15)
            rows = await shown(rig, provider)
            assert len(rows) == 8 and "THE RECORD" in system_of(provider)
            await idle(rig, 15)
            await say(rig, "/compress")
            await idle(rig, 15)
            assert len(await shown(rig, provider)) >= 8  # with nothing new to summarise, the turn runs as it is
        assert len(await all_rows(rig)) == 12 + 8


async def test_without_the_setting_a_pause_of_any_length_summarises_nothing(rig: Rig) -> None:
    await seed(rig, 10)
    await idle(rig, 100_000)
    async with talking(rig) as provider:
        assert len(await shown(rig, provider)) == 20 and summaries(provider) == []


async def test_a_second_compression_takes_the_first_summary_and_only_what_is_new(rig: Rig) -> None:
    await seed(rig, 10)
    async with talking(rig) as provider:
        await say(rig, "/compress")
        await say(rig, "/compress here 1")
        await seed(rig, 5)
        await say(rig, "/compress focus on ships")
        _, second, third = summaries(provider)
    assert "The record so far:\nTHE RECORD" in second and "q0" not in second and "q6" in second
    assert "in detail: focus on ships" in third
    assert (await facts(rig))["consolidated"] != "12"


async def test_U3_a_compression_that_cannot_be_kept_changes_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await seed(rig, 10, prompt=77)
    before, known = await all_rows(rig), await facts(rig)
    async with talking(rig):
        await rig.accept("/compress")
        lease = await rig.lease()
        write = rig.pipe.store.database.write

        async def away(*_: object) -> None:
            lease.lose()
            raise Unavailable("the database is gone")

        monkeypatch.setattr(rig.pipe.store.database, "write", away)
        with pytest.raises(Unavailable):
            await take_turns(lease, rig.parts())
        monkeypatch.setattr(rig.pipe.store.database, "write", write)
    assert (await all_rows(rig), await facts(rig)) == (before, known)


async def test_U5_rows_that_were_summarised_survive_a_retry(rig: Rig) -> None:
    await seed(rig, 10)
    async with talking(rig) as provider:
        await say(rig, "/compress")
        known = await facts(rig)
        assert await say(rig, "/retry") == "heard: q9"
        assert "THE RECORD" in system_of(provider)
    rows = await all_rows(rig)
    assert [row["text"] for row in rows[:12]] == [f"{who}{n} " for n in range(6) for who in "qa"]
    assert not any(row["active"] for row in rows[:12]) and await facts(rig) == known
    assert (await active_rows(rig)).count("q9 ") == 1


@pytest.mark.parametrize("pairs", [0, 1, 4])
async def test_U8_with_nothing_to_compress_it_says_so_and_asks_nobody(rig: Rig, pairs: int) -> None:
    if pairs:
        await seed(rig, pairs)
    async with talking(rig) as provider:
        said = await say(rig, "/compress")
    assert said.startswith("No changes") and "Compressed" not in said
    assert provider.requests == [] and await facts(rig) == {}


async def test_U9_a_summary_that_takes_more_tokens_is_explained(rig: Rig) -> None:
    await commit(rig, Entry("user", "a"), Entry("assistant", "b"), Entry("user", "c"), Entry("assistant", "d"))
    async with open_provider(answer=lambda asked: "much longer than what it stands for " * 5) as provider:
        rig.agent = LlmAgent(config(provider))
        said = await say(rig, "/compress here 1")
    assert "Compressed 4 rows to 3" in said and "denser" in said


@pytest.mark.parametrize("trouble", [openai.BROKEN, openai.OUT_OF_QUOTA, openai.RATE_LIMITED])
async def test_U10_a_summary_that_fails_says_why_and_that_nothing_was_dropped(rig: Rig, trouble: Trouble) -> None:
    await seed(rig, 10)
    before = await active_rows(rig)
    async with talking(rig, trouble):
        said = await say(rig, "/compress")
    assert "Nothing was dropped" in said and said.startswith("⚠") and ("model" in said or "wait" in said)
    assert (await active_rows(rig))[:20] == before and await facts(rig) == {}


async def test_U10_without_a_model_nothing_is_changed(rig: Rig) -> None:
    await seed(rig, 10)
    assert "Nothing was changed" in await say(rig, "/compress")
    assert len(await active_rows(rig)) == 22


async def test_an_agent_that_would_not_see_the_summary_is_not_compressed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await seed(rig, 10, prompt=120_000)
    monkeypatch.setattr(LlmAgent, "wants_context", False)
    async with talking(rig, context_tokens=128_000) as provider:
        assert "Nothing was changed" in await say(rig, "/compress")
        await say(rig, "hello")
    assert summaries(provider) == [] and len(await active_rows(rig)) == 24


async def test_U11_a_model_kept_for_asides_that_fails_is_a_note_and_no_warning(rig: Rig) -> None:
    await seed(rig, 10)
    async with talking(rig, openai.NO_SUCH_MODEL, aside_model="small") as provider:
        said = await say(rig, "/compress")
    assert [asked.body["model"] for asked in provider.requests] == ["small", "test-model"]
    assert "Compressed" in said and "(small did not answer" in said and "⚠" not in said


async def test_U12_a_compression_cut_short_leaves_nothing_half_done_and_is_done_once_by_the_next_worker(
    rig: Rig,
) -> None:
    """Ours commits nothing when it is cancelled: the command waits in the mailbox, and the next holder runs it."""
    await seed(rig, 10)
    before = await all_rows(rig)
    async with talking(rig) as provider:
        provider.gate = asyncio.Event()
        await rig.accept("/compress")
        running = asyncio.create_task(take_turns(await rig.lease(), rig.parts()))
        while not provider.requests:
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert await all_rows(rig) == before and await facts(rig) == {}
        provider.gate.set()
        await rig.expire_lease(rig.pipe.turns, key_of())
        await rig.pipe.turns.recover(key_of())
        await rig.run_turns()
    assert (await facts(rig))["consolidated"] == "12" and len(await all_rows(rig)) == 22


async def test_U13_a_session_that_moved_on_meanwhile_is_not_overwritten(rig: Rig) -> None:
    await seed(rig, 10)
    async with talking(rig) as provider:
        provider.gate = asyncio.Event()
        await rig.accept("/compress")
        running = asyncio.create_task(take_turns(await rig.lease(), rig.parts()))
        while not provider.requests:
            await asyncio.sleep(0.01)
        await commit(rig, Entry("user", "late"), Entry("assistant", "answer"))
        provider.gate.set()
        await running
    assert len(summaries(provider)) == 2  # the first was thrown away with its commit
    rows = await all_rows(rig)
    assert [row["text"] for row in rows if row["active"]][-4:-2] == ["late", "answer"]
    assert (await facts(rig))["consolidated"] == "14"


# -- by itself


async def test_U14_three_hundred_small_messages_are_no_reason_to_compress(rig: Rig) -> None:
    await seed(rig, 150, prompt=900)
    async with talking(rig, context_tokens=128_000) as provider:
        await say(rig, "hello")
    assert summaries(provider) == [] and await facts(rig) == {}


@pytest.mark.parametrize(("window", "expected"), [(128_000, 1), (200_000, 0)])
async def test_U15_a_prompt_of_120k_tokens_compresses_a_window_of_128k_and_not_one_of_200k(
    rig: Rig, window: int, expected: int
) -> None:
    await seed(rig, 10, prompt=120_000)
    async with talking(rig, context_tokens=window) as provider:
        assert await say(rig, "hello") == "heard: hello"
        assert len(summaries(provider)) == expected
        shown = [content for _, content in provider.requests[-1].messages]
        assert ("THE RECORD" in shown[0]) == bool(expected) and ("q0 " in shown) != bool(expected)
        await say(rig, "hello again")
        assert len(summaries(provider)) == expected  # the next prompt was small again
    assert len(await all_rows(rig)) == 24


async def test_U15_an_old_count_does_not_compress_twice(rig: Rig) -> None:
    await seed(rig, 10, prompt=120_000)
    async with talking(rig, context_tokens=128_000) as provider:
        await say(rig, "/compress")
        await say(rig, "hello")
    assert len(summaries(provider)) == 1


async def test_U16_a_failed_compression_changes_no_row_counts_and_waits_before_the_next_try(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await seed(rig, 10, prompt=120_000)
    async with talking(rig, openai.BROKEN, context_tokens=128_000) as provider:
        assert await say(rig, "one") == "heard: one"  # the turn goes on as it is
        assert len(summaries(provider)) == 1 and len(await active_rows(rig)) == 22
        assert orjson.loads((await facts(rig))["compress_failed"])["streak"] == 1
        await commit(rig, Entry("user", "x"), Entry("assistant", "y", data={"usage": {"prompt": 120_000}}))
        await say(rig, "two")
        assert len(summaries(provider)) == 1  # not yet again
        now = now_ms()
        monkeypatch.setattr(compressing, "now_ms", lambda: now + 6 * 60_000)
        await commit(rig, Entry("user", "x"), Entry("assistant", "y", data={"usage": {"prompt": 120_000}}))
        await say(rig, "three")
        assert len(summaries(provider)) == 2
    assert "compress_failed" not in await facts(rig) and "summary" in await facts(rig)


async def test_U17_a_conversation_that_is_still_too_long_is_said_to_be(rig: Rig) -> None:
    await seed(rig, 3, prompt=4000)
    await commit(rig, Entry("user", "x" * 12_000), Entry("assistant", "y", data={"usage": {"prompt": 4000}}))
    async with talking(rig, context_tokens=4096, max_output_tokens=256) as provider:
        assert await say(rig, "hello") == STILL_FULL_NOTE
        assert len(summaries(provider)) == 1


async def test_a_turn_that_fails_after_making_room_keeps_the_room(rig: Rig) -> None:
    await seed(rig, 10, prompt=120_000)
    async with talking(rig, None, openai.BROKEN, context_tokens=128_000) as provider:
        await rig.accept("hello")
        for _ in range(2):
            await rig.run_turns()
            await rig.expire_lease(rig.pipe.turns, key_of())
            await rig.pipe.turns.recover(key_of())
        assert len(summaries(provider)) == 1
    assert (await active_rows(rig))[-2:] == ["hello", "heard: hello"]


async def test_E8_a_turn_without_a_count_leaves_the_last_one_and_moves_the_time(rig: Rig) -> None:
    """Our count is on the rows: a command has none, an answer of 0 tokens is 0."""
    await seed(rig, 1, prompt=77)
    before, _ = await rig.pipe.store.transcript.load(key_of(), "")
    await say(rig, "/whoami")
    after, _ = await rig.pipe.store.transcript.load(key_of(), "")
    assert last_prompt_tokens(after.history) == last_prompt_tokens(before.history) == 77
    assert after.updated_at >= before.updated_at and after.version == before.version + 1
    await seed(rig, 1, prompt=0)
    zero, _ = await rig.pipe.store.transcript.load(key_of(), "")
    assert last_prompt_tokens(zero.history) == 0


async def test_a_commit_without_mail_is_fenced_like_any_other(rig: Rig) -> None:
    await seed(rig, 1)
    stale, _ = await rig.pipe.store.transcript.load(key_of(), "")
    await seed(rig, 1)
    late = Change(facts={(stale.id, "summary"): "late"})
    with pytest.raises(Superseded):
        await rig.pipe.store.commit(Commit(stale, key_of(), proof(), change=late))
    assert await facts(rig) == {}


# -- the rows that a turn is given


async def sent(rig: Rig, *rows: Entry) -> list[tuple[str, str]]:
    """What the model is shown of these rows."""
    await commit(rig, *rows)
    async with talking(rig) as provider:
        await say(rig, "and now?")
    return provider.requests[0].messages[1:-1]


@pytest.fixture
async def short(make_settings: Make) -> AsyncIterator[Rig]:
    """A pipeline whose turns see six rows."""
    async with open_pipeline(make_settings(history_messages=6)) as pipe:
        yield Rig(pipe)


async def test_N21_commands_are_in_the_transcript_and_not_shown_to_the_model(rig: Rig) -> None:
    async with talking(rig) as provider:
        status = await say(rig, "/whoami")
        await say(rig, "hi")
    assert provider.requests[0].messages[1:] == [("user", "hi")]
    assert await rig.transcript() == ["/whoami", status, "hi", "heard: hi"]


async def test_N23_the_last_rows_are_shown(short: Rig) -> None:
    assert await sent(short, *(Entry("user", str(n)) for n in range(10))) == [("user", str(n)) for n in range(4, 10)]


async def test_N26_rows_that_are_cut_in_a_tool_turn_begin_with_a_question_and_have_no_orphans(short: Rig) -> None:
    new = [*tool_turn("new"), Entry("user", "thanks")]
    assert [text for _, text in await sent(short, *tool_turn("old", groups=3), *new)] == [row.text for row in new]


async def test_N27_of_a_long_turn_no_more_rows_are_shown_than_the_limit(short: Rig) -> None:
    call = Entry("assistant", "", data={"tool_calls": [{"id": "a", "name": "look", "arguments": "{}"}]})
    assert len(await sent(short, Entry("user", "q"), call, *(Entry("assistant", str(n)) for n in range(12)))) <= 6
