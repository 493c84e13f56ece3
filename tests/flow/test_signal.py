"""Signal from the daemon's event to the sent reply: real Valkey, a real worker, and a local daemon."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from producers.listening import listen_on
from shared import keys
from shared.agent.turn import Result, Turn
from shared.errors import Unavailable
from shared.messages import Entry, Media, Reply
from shared.pipeline import Pipeline, open_pipeline
from shared.platforms.signal import SignalSettings
from shared.settings import Settings
from tests.flow.told import Told
from tests.store.books import ask
from tests.support.servers import Databases
from tests.support.signal import (
    ACCOUNT,
    ANN,
    ANN_UUID,
    GROUP,
    OWN_UUID,
    FakeSignal,
    Refused,
    Trouble,
    an_event,
    in_group,
    open_signal,
)
from tests.support.working import working
from workers.agents.contract import Agent, Answers
from workers.agents.functions import FunctionAgent, echo

PAYLOADS = Path(__file__).parents[1] / "payloads/signal"
SUCCESS, UNREACHED = {"type": "SUCCESS"}, {"type": "UNREGISTERED_FAILURE"}
MakeSettings = Callable[..., Settings]
_times = count(1_767_225_700_000)


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


@pytest.fixture
async def fake() -> AsyncIterator[FakeSignal]:
    async with open_signal() as opened:
        yield opened


def block(fake: FakeSignal, **changes: Any) -> SignalSettings:
    values = {"http_url": fake.url, "account": ACCOUNT, "uuid": OWN_UUID, "allowed_users": (ANN_UUID,)}
    return SignalSettings(**{**values, "rate_limit_seconds": 0.5, **changes})


@pytest.fixture
def settings(make_settings: MakeSettings, fake: FakeSignal) -> Settings:
    return make_settings(signal=block(fake))


@asynccontextmanager
async def listening(pipe: Pipeline) -> AsyncIterator[None]:
    stopping = asyncio.Event()
    running = asyncio.create_task(listen_on(pipe, "signal", stopping))
    try:
        yield
    finally:
        stopping.set()
        await running


@asynccontextmanager
async def answering(pipe: Pipeline, agent: Agent | Answers | None = None) -> AsyncIterator[None]:
    async with listening(pipe), working(pipe, agent or FunctionAgent(echo)):
        yield


def said(text: str, **more: Any) -> Any:
    return an_event(text, next(_times), **more)


def saying(*replies: Reply) -> Agent | Answers:
    class Saying:
        async def run(self, turn: Turn) -> Result:
            return Result((Entry("assistant", "said"),), replies)

    return Saying()


def payload(name: str) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads((PAYLOADS / f"{name}.json").read_bytes())
    return found


async def sent(fake: FakeSignal, count: int) -> None:
    await fake.until(lambda fake: len(fake.of("send")) >= count)


async def nothing_more(fake: FakeSignal) -> None:
    """What is brought now is answered, and nothing before it was."""
    before = len(fake.of("send"))
    await fake.bring(said("the end"))
    await fake.until(lambda fake: "echo: the end" in fake.texts(ANN_UUID))
    assert len(fake.of("send")) == before + 1


async def journaled(pipe: Pipeline, count: int) -> list[str]:
    async with asyncio.timeout(90):
        while len(rows := await ask(pipe.store, "SELECT payload FROM inbox ORDER BY seq")) < count:
            await asyncio.sleep(0.02)
    return [orjson.loads(row["payload"])["inbound"]["text"] for row in rows]


# From the event to the reply.


TO_ANN = {"recipient": [ANN_UUID]}
TO_GROUP = {"groupId": GROUP, "quoteTimestamp": 1767225600123, "quoteAuthor": ANN_UUID, "quoteMessage": ""}
ANSWERED: list[tuple[str, dict[str, Any], str]] = [
    ("direct", TO_ANN, "echo: hello"),
    ("direct_quote", TO_ANN, "echo: why?"),
    ("image", TO_ANN, "echo: what is this?"),
    ("group_mention", TO_GROUP, "echo: status?"),
    ("group_quote_of_the_bot", TO_GROUP, "echo: go on"),
]
LEFT = [
    "group_unaddressed",
    "group_looks_like_a_mention",
    "group_mention_of_another",
    "group_update",
    "own_message",
    "another_account",
    "reaction",
    "remote_delete",
    "expiration_update",
    "edit",
    "receipt",
    "typing",
    "call",
    "story",
    "sync",
    "cannot_be_decrypted",
]


async def test_a_message_is_answered_where_it_was_said(
    pipe: Pipeline, fake: FakeSignal, subtests: pytest.Subtests
) -> None:
    async with answering(pipe):
        for n, (name, place, answer) in enumerate(ANSWERED):
            with subtests.test(name):
                event = payload(name)
                sent_at = 1767225600123 + n  # the same moment of the same person would be the same message
                event["envelope"]["timestamp"] = event["envelope"]["dataMessage"]["timestamp"] = sent_at
                expected = {**place, **({"quoteTimestamp": sent_at} if "quoteTimestamp" in place else {})}
                await fake.bring(event)
                await sent(fake, n + 1)
                assert fake.of("send")[-1] == {**expected, "message": answer}
        await nothing_more(fake)


async def test_what_is_not_for_us_is_not_answered(pipe: Pipeline, fake: FakeSignal) -> None:
    async with answering(pipe):
        await fake.bring(*map(payload, LEFT))
        await nothing_more(fake)
    assert await ask(pipe.store, "SELECT id FROM dead") == []
    assert await journaled(pipe, 1) == ["the end"]


async def test_a_message_that_comes_twice_is_answered_once(pipe: Pipeline, fake: FakeSignal) -> None:
    async with answering(pipe):
        await fake.bring(payload("direct"), payload("direct"))
        await fake.until(lambda fake: fake.texts(ANN_UUID))
        await fake.bring(payload("direct_hidden_number"))  # the same message of the same person
        await nothing_more(fake)
    assert fake.texts(ANN_UUID) == ["echo: hello", "echo: the end"]


async def test_a_stranger_is_turned_away_and_the_log_says_whom_one_could_allow(
    pipe: Pipeline, fake: FakeSignal
) -> None:
    stranger = ("+15556667777", "2f3a4b5c-0000-4000-8000-000000000666")
    with capture_logs() as lines:
        async with answering(pipe):
            await fake.bring(an_event("let me in", next(_times), stranger))
            await fake.until(lambda fake: any("pairing code" in text for text in fake.texts(stranger[1])))
            await nothing_more(fake)
    [line] = [line for line in lines if line["event"] == "stranger turned away"]
    assert line["user"] == stranger[0]


@pytest.mark.parametrize("id", [ANN, ANN_UUID])
async def test_a_person_may_be_listed_by_number_or_by_uuid(
    make_settings: MakeSettings, fake: FakeSignal, id: str
) -> None:
    async with open_pipeline(make_settings(signal=block(fake, allowed_users=(id,)))) as pipe, answering(pipe):
        await fake.bring(said("hello"))
        await fake.until(lambda fake: fake.texts(ANN_UUID))


# The connection.


async def test_what_came_while_nobody_listened_is_asked_for_where_the_daemon_remembers_it(
    pipe: Pipeline, fake: FakeSignal
) -> None:
    async with listening(pipe):
        await fake.bring(said("a"))
        await journaled(pipe, 1)
    await fake.bring(said("b"))
    async with listening(pipe):
        assert await journaled(pipe, 2) == ["a", "b"]
        await fake.cut()
        await fake.bring(said("c"))
        assert await journaled(pipe, 3) == ["a", "b", "c"]
    assert fake.asked_behind == ["", "run-1", "run-2"]


async def test_a_first_start_asks_a_daemon_for_nothing_that_it_remembers(pipe: Pipeline, fake: FakeSignal) -> None:
    fake.remember(said("long ago"))
    async with listening(pipe):
        await fake.until(lambda fake: fake.listeners)
        await fake.bring(said("hello"))
        assert await journaled(pipe, 1) == ["hello"]
    assert fake.asked_behind == [""]


@pytest.mark.parametrize("kept", [b"run-1\r\nx: y", b"\xff", b"", b"x" * 1000])
async def test_what_somebody_wrote_to_redis_in_place_of_an_events_id_is_not_sent(
    pipe: Pipeline, fake: FakeSignal, kept: bytes
) -> None:
    name = keys.position("signal", ACCOUNT)
    await pipe.servers.of_key(name).client.set(name, kept)
    async with listening(pipe):
        await fake.until(lambda fake: fake.listeners)
        await fake.bring(said("hello"))
        assert await journaled(pipe, 1) == ["hello"]
    assert fake.asked_behind == [""]


async def test_a_daemon_that_falls_silent_is_connected_to_anew(make_settings: MakeSettings, fake: FakeSignal) -> None:
    async with open_pipeline(make_settings(signal=block(fake, silent_seconds=0.3))) as pipe, listening(pipe):
        await fake.until(lambda fake: len(fake.asked_behind) > 2)
        await fake.bring(said("still here"))
        assert await journaled(pipe, 1) == ["still here"]


async def test_what_a_forgetful_daemon_handed_over_survives_a_journal_that_is_away(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = asyncio.Event()

    def away(here: str) -> None:
        if here == "accept.before_journal":
            reached.set()
            raise Unavailable("the database is away")

    async with open_signal(remembers=False) as fake, open_pipeline(make_settings(signal=block(fake))) as pipe:
        with monkeypatch.context() as patch:
            patch.setattr("shared.door.reach", away)
            async with listening(pipe):
                await fake.bring(said("a"), said("b"))
                async with asyncio.timeout(90):
                    await reached.wait()
        async with listening(pipe):
            await fake.bring(said("c"))
            assert await journaled(pipe, 3) == ["a", "b", "c"]


async def test_what_cannot_be_understood_is_recorded_and_holds_up_nothing(pipe: Pipeline, fake: FakeSignal) -> None:
    async with listening(pipe):
        await fake.bring_raw(b"{", b"[]", orjson.dumps(an_event("x", 1, mentions=5)))
        await fake.bring(said("a"))
        assert await journaled(pipe, 1) == ["a"]
    rows = await ask(pipe.store, "SELECT kind, reason FROM dead")
    assert [(row["kind"], row["reason"]) for row in rows] == [("request", "malformed")] * 3


# What is sent.


async def test_markdown_becomes_styles_and_long_replies_parts_of_2000_bytes(pipe: Pipeline, fake: FakeSignal) -> None:
    long = "\n".join(f"line {n} 🙂 of **many**" for n in range(200))
    async with answering(pipe, saying(Reply("**Now** run `it`"), Reply(long))):
        await fake.bring(said("go"))
        await fake.until(lambda fake: fake.texts(ANN_UUID) and fake.texts(ANN_UUID)[-1].endswith("(3/3)"))
    first, *parts = fake.of("send")
    assert (first["message"], first["textStyle"]) == ("Now run it", ["0:3:BOLD", "8:2:MONOSPACE"])
    lines = [line for part in parts for line in part["message"].rsplit(" (", 1)[0].split("\n")]
    assert lines == [f"line {n} 🙂 of many" for n in range(200)]


async def test_a_file_goes_as_its_bytes_or_its_address_and_never_as_a_path_of_the_daemons_machine(
    pipe: Pipeline, fake: FakeSignal
) -> None:
    picture = "data:image/png;filename=a.png;base64,iVBORw0KGgo="
    files = (Media(picture, "image/png"), Media("https://x/r.pdf", None, "report"), Media("/etc/passwd"))
    async with answering(pipe, saying(Reply("here", files))):
        await fake.bring(said("go"))
        await fake.until(lambda fake: len(fake.of("send")) == 4)
    _, *sent = fake.of("send")
    assert [fields.get("attachments") for fields in sent] == [[picture], None, None]
    assert [fields["message"] for fields in sent[1:]] == ["report: https://x/r.pdf", "/etc/passwd"]


async def test_a_message_of_ours_is_changed_later_by_its_receipt(pipe: Pipeline, fake: FakeSignal) -> None:
    class Drafting:
        async def run(self, turn: Turn) -> Result:
            if turn.mail[-1].text == "begin":
                return Result((Entry("assistant", "draft"),), (Reply("draft"),))
            receipt = str(fake.shown[ANN_UUID][0]["timestamp"])
            return Result((Entry("assistant", "final"),), (Reply("final", edits=receipt),))

    async with answering(pipe, Drafting()):
        await fake.bring(said("begin"))
        await fake.until(lambda fake: fake.texts(ANN_UUID) == ["draft"])
        await fake.bring(said("end"))
        await fake.until(lambda fake: fake.texts(ANN_UUID) == ["final"])
    assert fake.of("send")[-1]["editTimestamp"] == fake.shown[ANN_UUID][0]["timestamp"]


async def test_while_a_turn_runs_the_chat_shows_that_an_answer_is_coming(pipe: Pipeline, fake: FakeSignal) -> None:
    class Waiting:
        async def run(self, turn: Turn) -> Result:
            await fake.until(lambda fake: fake.of("sendTyping"))
            return Result((Entry("assistant", "now"),), (Reply("now"),))

    async with answering(pipe, Waiting()):
        await fake.bring(said("go"))
        await fake.until(lambda fake: fake.texts(ANN_UUID))
    assert fake.of("sendTyping")[0] == {"recipient": [ANN_UUID]}


@pytest.mark.parametrize("how", ["error", "result"])
async def test_when_signal_asks_to_wait_the_chat_waits_and_stays_in_order(
    pipe: Pipeline, fake: FakeSignal, how: str
) -> None:
    limited = {"type": "RATE_LIMIT_FAILURE", "retryAfterSeconds": 1, "token": "challenge-1"}
    if how == "error":
        fake.trouble.append(Refused(-5, "wait", limited))
    else:
        fake.results.append([limited])
    with capture_logs() as lines:
        async with answering(pipe):
            await fake.bring(said("a"), said("b"))
            await fake.until(lambda fake: len(fake.texts(ANN_UUID)) == 2)
    assert fake.texts(ANN_UUID) == ["echo: a", "echo: b"]
    times = [call.at for call in fake.calls if call.method == "send"]
    assert times[1] - times[0] > 0.9
    assert any("captcha" in line["event"] for line in lines)


async def test_trouble_that_passes_is_tried_again(pipe: Pipeline, fake: FakeSignal) -> None:
    fake.trouble.append(Refused(-3, "Connection closed"))
    fake.results.append([{"type": "NETWORK_FAILURE"}])
    async with answering(pipe):
        await fake.bring(said("a"))
        await fake.until(lambda fake: fake.texts(ANN_UUID))
    assert (fake.texts(ANN_UUID), len(fake.of("send"))) == (["echo: a"], 3)


async def test_in_a_group_a_part_that_reached_somebody_is_not_sent_again(pipe: Pipeline, fake: FakeSignal) -> None:
    fake.results.append([SUCCESS, UNREACHED, {"type": "NETWORK_FAILURE"}])
    mention = {"number": ACCOUNT, "uuid": OWN_UUID, "start": 0, "length": 1}
    async with answering(pipe):
        await fake.bring(said("\ufffc a", **in_group(mentions=[mention])))
        await fake.until(lambda fake: fake.texts(GROUP))
        async with asyncio.timeout(90):
            while [row["state"] for row in await ask(pipe.store, "SELECT state FROM outbox")] != ["sent"]:
                await asyncio.sleep(0.02)
    assert fake.texts(GROUP) == ["echo: a"] and len(fake.of("send")) == 1


@pytest.mark.parametrize(
    ("kind", "reason"), [("UNREGISTERED_FAILURE", "not on Signal"), ("IDENTITY_FAILURE", "identity key changed")]
)
async def test_what_reaches_nobody_for_good_is_set_aside_with_the_reason(
    pipe: Pipeline, fake: FakeSignal, kind: str, reason: str
) -> None:
    fake.results.append([{"type": kind}])
    async with answering(pipe):
        await fake.bring(said("a"), said("b"))
        await fake.until(lambda fake: fake.texts(ANN_UUID) == ["echo: b"])
        [letter] = await pipe.store.dead.all(state="open", limit=10)
    assert (letter["kind"], letter["reason"]) == ("reply", "refused") and reason in letter["detail"]


@pytest.mark.parametrize("again", [True, False])
async def test_a_send_whose_answer_is_lost_is_repeated_only_if_the_policy_says_so(
    make_settings: MakeSettings, fake: FakeSignal, again: bool
) -> None:
    fake.trouble.append(Trouble.CUT)
    settings = make_settings(signal=block(fake), resend_ambiguous=again)
    async with open_pipeline(settings) as pipe, answering(pipe):
        await fake.bring(said("a"), said("b"))
        await fake.until(lambda fake: "echo: b" in fake.texts(ANN_UUID))
        assert fake.texts(ANN_UUID) == ["echo: a"] * (2 if again else 1) + ["echo: b"]
        dead = await pipe.store.dead.all(state="open", limit=10)
        assert [letter["reason"] for letter in dead] == ([] if again else ["ambiguous"])


# As processes.


async def test_keyturn_listen_and_work_are_all_it_takes(
    fake: FakeSignal, tmp_path: Path, redis_url: str, database_url: str
) -> None:
    values = {"signal__http_url": fake.url, "signal__account": ACCOUNT, "signal__allowed_users": ANN_UUID}
    told = Told(tmp_path, redis_url, database_url, **values)
    try:
        listener = told.run("-m", "keyturn.cli", "listen", "signal")
        told.work()
        await fake.bring(said("now hello"))
        await fake.until(lambda fake: fake.texts(ANN_UUID) == ["done now hello"])
        listener.send_signal(signal.SIGTERM)
        async with asyncio.timeout(90):
            while listener.poll() is None:
                await asyncio.sleep(0.02)
        assert listener.returncode == 0, told.log()
    finally:
        told.close()
