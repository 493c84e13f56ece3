"""How an answer is shown while it is written: what of it, how often, and when no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shared.agent.events import Delta, Restarted, Row
from shared.errors import RateLimited, Transient, Undeliverable
from shared.lane import Lease
from shared.messages import Entry, Inbound, Mail, Part, Receipt, Source
from shared.pipeline import Pipeline
from shared.platforms import PLATFORMS
from shared.platforms.facts import Idempotency, Limit, PreviewLimits
from workers.delivery import preview
from workers.delivery.preview import GOES_ON, LEAST, LONGEST_WAIT, STRIKES, OwnPreview, Preview, Previews
from workers.delivery.publish import Publisher
from workers.delivery.sender import Sender

FAILED, PAUSE = Transient("HTTP 502"), timedelta(seconds=7)
EVERY = 2.0  # seconds between changes that the platform allows
Answer = Exception | timedelta | None


class Shown:
    """A message that is changed. The answer grows with each change, until this script has ended."""

    def __init__(self, *script: Answer, has_draft: bool = True) -> None:
        self.script = [*script]
        self.has_draft = has_draft
        self.texts: list[str] = []
        self.on_change: Callable[[], None] = lambda: None

    async def show(self, text: str) -> timedelta | None:
        self.texts.append(text)
        answer = self.script.pop(0) if self.script else None
        if self.script:
            self.on_change()
        if isinstance(answer, Exception):
            raise answer
        return answer


class Showing:
    """A preview whose pauses are over at once."""

    def __init__(self, *script: Answer, changes: int = 1000, units: int = 10_000, has_draft: bool = True) -> None:
        self.shown = Shown(*script, has_draft=has_draft)
        self.lease = SimpleNamespace(lost=False, key="agent:main:slack:dm:1")
        limits = PreviewLimits(EVERY, changes)
        self.preview = Preview(cast(Any, self.shown), cast(Lease, self.lease), limits, Limit(units))
        self.shown.on_change = lambda: self.write(" and so on")

    def write(self, text: str) -> None:
        self.preview.heard(Delta(text))

    async def ended(self) -> None:
        """Wait until it shows nothing more by itself."""
        task = self.preview._task
        assert task is not None
        await task


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, in seconds."""
    made, timeout = list[float](), asyncio.timeout

    def noted(seconds: float) -> asyncio.Timeout:
        made.append(seconds)
        return timeout(0)

    names = ("Event", "Task", "create_task", "wait", "sleep")
    quick = SimpleNamespace(timeout=noted, **{name: getattr(asyncio, name) for name in names})
    monkeypatch.setattr(preview, "asyncio", quick)
    return made


async def turns_of_the_loop(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0)


async def test_a_text_is_shown_once_it_is_long_enough_to_be_read_and_then_each_time_that_it_has_grown() -> None:
    showing, least = Showing(), "x" * (LEAST - len(GOES_ON))
    showing.write(f"  {least[1:]}\n")
    await turns_of_the_loop()
    assert showing.shown.texts == []
    showing.preview.heard(Restarted())
    showing.write(least)
    await until(lambda: showing.shown.texts)
    showing.write(" \n")  # nothing to see
    await turns_of_the_loop()
    assert showing.shown.texts == [least + GOES_ON]
    showing.write("more")
    await until(lambda: len(showing.shown.texts) == 2)
    await showing.preview.end()
    assert showing.shown.texts == [least + GOES_ON, f"{least} \nmore{GOES_ON}"]


@pytest.mark.parametrize("event", [Row(Entry("assistant", "looking")), Restarted()])
async def test_what_is_shown_begins_again_when_a_row_is_final_or_the_answer_begins_again(event: Any) -> None:
    showing = Showing()
    showing.write("x" * LEAST)
    await until(lambda: showing.shown.texts)
    showing.preview.heard(event)
    showing.write("y" * LEAST)
    await until(lambda: len(showing.shown.texts) == 2)
    await showing.preview.end()
    assert showing.shown.texts[1] == "y" * LEAST + GOES_ON


async def test_of_a_text_that_is_too_long_for_one_message_the_beginning_is_shown() -> None:
    showing, fits = Showing(units=100), "x" * (100 - len(GOES_ON))
    showing.write(fits)
    await until(lambda: showing.shown.texts)
    showing.write("y")
    await until(lambda: len(showing.shown.texts) == 2)
    await showing.preview.end()
    whole, cut = showing.shown.texts
    assert whole == fits + GOES_ON
    assert len(cut) <= 100 and cut.startswith("x" * 80) and not cut.endswith(GOES_ON)


@pytest.mark.parametrize("answers", [[None] * 9, [FAILED, None] * 5], ids=["taken", "every second one failed"])
async def test_a_message_is_changed_only_so_often(answers: list[Answer]) -> None:
    showing = Showing(*answers, changes=4)
    showing.write("x" * LEAST)
    await showing.ended()
    assert len(showing.shown.texts) == 4


async def test_waiting_for_the_draft_or_the_budget_is_no_change() -> None:
    showing = Showing(PAUSE, PAUSE, None, PAUSE, None, None, changes=2)
    showing.write("x" * LEAST)
    await showing.ended()
    assert len(showing.shown.texts) == 5


async def test_changes_that_fail_in_a_row_end_the_preview_and_one_that_is_taken_begins_the_row_anew() -> None:
    almost = [FAILED] * (STRIKES - 1)
    showing = Showing(*almost, None, *almost, None, *almost, FAILED, None, None)
    showing.write("x" * LEAST)
    await showing.ended()
    assert len(showing.shown.texts) == 3 * STRIKES


@pytest.mark.parametrize(
    ("answer", "pause"),
    [
        (None, EVERY),
        (timedelta(0), EVERY),  # the draft is on its way
        (PAUSE, PAUSE.total_seconds()),
        (FAILED, EVERY),
        (RateLimited(timedelta(0)), EVERY),
        (RateLimited(LONGEST_WAIT), LONGEST_WAIT.total_seconds()),
    ],
)
async def test_the_next_change_waits_as_long_as_the_platform_or_the_budget_wants_and_then_all_goes_on_as_before(
    answer: Answer, pause: float, pauses: list[float]
) -> None:
    showing = Showing(answer, None, None)
    showing.write("x" * LEAST)
    await until(lambda: len(showing.shown.texts) == 3)
    await showing.preview.end()
    assert pauses[:2] == [pause, EVERY]


@pytest.mark.parametrize("refusal", [RateLimited(LONGEST_WAIT * 2), Undeliverable("it cannot be changed")])
async def test_a_platform_that_wants_a_long_pause_or_refuses_gets_no_more_changes(refusal: Exception) -> None:
    showing = Showing(None, refusal, None, None)
    showing.write("x" * LEAST)
    await showing.ended()
    assert len(showing.shown.texts) == 2


async def test_what_the_message_shows_is_known_to_the_answer_that_takes_its_place() -> None:
    showing = Showing(None, FAILED, FAILED, FAILED)
    showing.write("x" * LEAST)
    await showing.ended()
    assert showing.preview.has_draft and showing.preview.shown == "x" * LEAST  # not what the platform did not take
    own = Showing(has_draft=False)
    own.write("x" * LEAST)
    await until(lambda: own.shown.texts)
    await own.preview.end()
    assert not own.preview.has_draft and own.preview.shown == ""


async def test_nothing_is_shown_after_the_end_and_an_answer_that_was_never_written_costs_nothing() -> None:
    silent, showing = Showing(), Showing()
    await silent.preview.end()
    assert silent.preview._task is None
    showing.write("x" * LEAST)
    await until(lambda: showing.shown.texts)
    await showing.preview.end()
    showing.write(" and more")
    await turns_of_the_loop()
    assert len(showing.shown.texts) == 1


@pytest.mark.parametrize("lost", [True, False])
async def test_a_change_that_is_under_way_ends_before_the_answer_unless_another_worker_has_the_key(lost: bool) -> None:
    showing, asked, goes_on, done = Showing(), asyncio.Event(), asyncio.Event(), list[bool]()

    async def slow(text: str) -> None:
        asked.set()
        await goes_on.wait()
        done.append(True)

    showing.shown.show = slow  # type: ignore[method-assign]
    showing.write("x" * LEAST)
    await asked.wait()
    showing.lease.lost = lost
    ending = asyncio.create_task(showing.preview.end())
    await turns_of_the_loop()
    assert ending.done() == lost
    goes_on.set()
    await ending
    assert done == ([] if lost else [True])


async def test_a_preview_ends_when_another_worker_has_the_key() -> None:
    showing = Showing(None, None, None)
    showing.shown.on_change = lambda: setattr(showing.lease, "lost", True)
    showing.write("x" * LEAST)
    await showing.ended()
    assert len(showing.shown.texts) == 1


class Plain:
    idempotency = Idempotency.NONE

    async def send(self, part: Part) -> Receipt:
        return Receipt()


class Changing(Plain):
    async def rewrite(self, part: Part) -> None:
        """It can."""


class Drafting(Changing):
    draft_seconds = 3.0

    async def draft(self, said: Inbound, text: str) -> None:
        """It can."""


@pytest.mark.parametrize(
    ("platform", "sender", "chat_type", "journaled", "shows"),
    [
        ("slack", Changing(), "dm", True, preview.DraftMessage),
        ("slack", Changing(), "dm", False, None),  # a draft is a row of the message's, which nobody wrote
        ("slack", Plain(), "dm", True, None),
        ("slack", None, "dm", True, None),
        ("telegram", Drafting(), "dm", True, OwnPreview),
        ("telegram", Drafting(), "dm", False, OwnPreview),
        ("telegram", Drafting(), "group", True, preview.DraftMessage),
        ("telegram", Changing(), "dm", True, preview.DraftMessage),
        ("webhook", Changing(), "dm", True, None),  # a platform of which nobody knows how often
        ("schedule", Changing(), "dm", True, None),  # none that people see
    ],
)
async def test_an_answer_is_shown_while_it_is_written_where_the_platform_and_its_sender_can(
    platform: str, sender: Any, chat_type: str, journaled: bool, shows: type | None
) -> None:
    class Store:
        drafts = None

    settings = SimpleNamespace(show_while_written=True)
    pipe = cast(Pipeline, SimpleNamespace(settings=settings, budgets=None, store=Store))
    senders: dict[str, Sender] = {platform: sender} if sender is not None else {}
    source = Source(platform, "1", chat_type, user="7")
    mail = Mail(1, Inbound("in_1", "e1", source, "hello"), journaled)
    lease = cast(Lease, SimpleNamespace(lost=False, key="agent:main:slack:dm:1"))
    found = Previews(pipe, senders, cast(Publisher, None)).of(mail, lease)
    assert (found and type(found._shown)) is shows
    if found is not None:
        facts = PLATFORMS[platform]
        assert found._limits == (PreviewLimits(3.0) if shows is OwnPreview else facts.preview)
        assert found._text_limit == facts.text_limit
    settings.show_while_written = False
    assert Previews(pipe, senders, cast(Publisher, None)).of(mail, lease) is None
