"""What a turn's commit is to write, and what delivery is to hear of it: each decision by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from shared.address import Address
from shared.agent.turn import Result
from shared.clock import now_ms
from shared.context.marks import AT, PROACTIVE
from shared.errors import AlreadyDone, Superseded, Unavailable
from shared.lane.lease import LeaseState
from shared.messages import Entry, Kind, Media, OwnInbound, Part, Reply, Terms
from shared.pipeline import open_pipeline
from shared.settings import MemorySettings, Settings
from shared.store.change import Commit, Committed
from shared.store.drafts import draft_id
from tests.support.pipe import Rig, an_inbound, key_of
from tests.support.stages import begun, decided, ending, held, hold, replies
from workers.agents.missing import Missing
from workers.commands import CommandAnswer
from workers.delivery.preview import Previews
from workers.delivery.publish import Publisher
from workers.turn.acknowledge import publish_and_acknowledge
from workers.turn.attempt import Attempt
from workers.turn.conclude import NOT_GONE_ON, NOT_RUN, NOTICE, announce, bury, command_done, commit, conclude
from workers.turn.parts import TurnParts
from workers.turn.run import prepare

CHAT = key_of("7", "telegram")
SAID = (
    Reply("", media=(Media("https://a/1.png"),)),
    Reply("elsewhere", to=Address("telegram", "", "8")),
    Reply("changed", edits="receipt"),
    Reply("first"),
    Reply("second"),
)


class Rewriter:
    """A platform's sender that can change its messages."""

    async def send(self, part: Part) -> None: ...

    async def rewrite(self, part: Part) -> None: ...


async def with_preview(rig: Rig, **about: Any) -> Attempt:
    """An attempt whose answer may be shown while it is written."""
    await rig.accept("hello", chat="7", platform="telegram")
    attempt = await decided(held(rig, await rig.lease(CHAT)))
    parts = attempt.parts
    parts.previews = Previews(rig.pipe, {"telegram": Rewriter()}, parts.publisher)  # type: ignore[dict-item]
    return replace(attempt, **about)


@pytest.mark.parametrize(
    ("about", "takes_its_place"),
    [({}, False), ({"number": 2}, True), ({"may_have_draft": True}, True)],
    ids=["the first attempt", "a later attempt", "an attempt after one that was given back"],
)
async def test_the_first_text_for_the_chat_takes_the_place_of_a_draft_that_may_be_there(
    rig: Rig, about: dict[str, Any], takes_its_place: bool
) -> None:
    attempt = await with_preview(rig, **about)
    draft = draft_id(attempt.mail.inbound.id) if takes_its_place else None
    ready = await prepare(attempt)
    said = conclude(ready, Result((Entry("assistant", "first"),), SAID)).commit.replies
    assert [(reply.text, reply.draft) for reply in said] == [
        ("", None),
        ("elsewhere", None),
        ("changed", None),
        ("first", draft),
        ("second", None),
    ]
    file = conclude(ready, Result((), SAID[:1])).commit.replies
    assert [reply.draft for reply in file] == [None]


@pytest.mark.parametrize(
    ("number", "shows", "takes_its_place"), [(0, True, False), (1, False, False), (1, True, True), (3, True, True)]
)
async def test_a_notice_takes_the_place_of_a_draft_only_where_an_attempt_may_have_begun_one(
    rig: Rig, number: int, shows: bool, takes_its_place: bool
) -> None:
    attempt = await with_preview(rig, number=number)
    if not shows:
        attempt.parts.previews = None
    [notice] = bury(attempt, "error", "why").commit.replies
    assert notice.draft == (draft_id(attempt.mail.inbound.id) if takes_its_place else None)


@pytest.mark.parametrize("error", [Superseded("k"), AlreadyDone("k"), Unavailable("away")])
async def test_an_answer_that_nobody_refused_is_not_replaced_by_another(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The mail has ended otherwise, or will be answered by whoever has its key."""
    attempt, instead = await decided(await hold(rig)), list[str]()
    attempt.lease.state = LeaseState.LOST

    async def fails(given: Commit) -> Committed:
        raise error

    monkeypatch.setattr(rig.pipe.store, "commit", fails)
    done = command_done(attempt, CommandAnswer("done"))
    with pytest.raises(type(error)):
        await commit(replace(done, otherwise=lambda: instead.append("sorry") or done))  # type: ignore[func-returns-value]
    assert instead == []


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (Kind.MESSAGE, [NOTICE]),
        (Kind.RESULT, [NOTICE]),
        (Kind.STEP, [NOTICE]),
        (Kind.FIRE, [NOT_RUN]),
        (Kind.EXPIRY, [NOT_GONE_ON]),
        (Kind.ANNOUNCEMENT, []),
        (Kind.CHECK, []),
    ],
)
async def test_the_notice_of_a_dead_letter_says_what_its_chat_waited_for(rig: Rig, kind: Kind, told: list[str]) -> None:
    attempt = await decided(await hold(rig))
    said = attempt.inbound
    inbound = OwnInbound(said.id, said.event_id, said.source, said.text, received_at=said.received_at, purpose=kind)
    conclusion = bury(replace(attempt, inbound=inbound), "error", "why")
    assert (ending(conclusion), replies(conclusion)) == (("dead", "error", 1), told)
    assert (conclusion.commit.ending.detail, conclusion.counted_as) == ("why", "dead")


async def test_what_is_ours_to_say_is_said_with_its_files_and_kept_as_ours(rig: Rig) -> None:
    attempt = await begun(await hold(rig, "The build is red"))
    file = Media("https://a/log.txt", "text/plain")
    inbound = replace(attempt.mail.inbound, media=(file,), received_at=now_ms() - 5)
    conclusion = announce(replace(attempt, mail=replace(attempt.mail, inbound=inbound)))
    [entry] = conclusion.commit.entries
    assert (entry.role, entry.text, entry.data) == (
        "assistant",
        "The build is red",
        {PROACTIVE: True, AT: inbound.received_at},
    )
    [reply] = conclusion.commit.replies
    assert (reply.text, reply.media) == ("The build is red", (file,))
    assert (ending(conclusion), conclusion.counted_as) == (("answered", None, 1), "announced")


async def test_a_command_that_says_nothing_tells_the_chat_nothing_and_keeps_only_itself(rig: Rig) -> None:
    conclusion = command_done(await begun(await hold(rig, "/start")), CommandAnswer(""))
    assert [entry.text for entry in conclusion.commit.entries] == ["/start"] and replies(conclusion) == []


class SlowPublisher(Publisher):
    """Publishes one reply at once and the others when it is told to, as where their chats live on another Redis server."""

    def __init__(self, rig: Rig, lease_ended: Callable[[], bool]) -> None:
        super().__init__(rig.pipe.deliveries)
        self._ended = lease_ended
        self.late: list[asyncio.Future[int]] = []
        self.error: Exception | None = None

    def publish(self, destination: str, part_ids: Sequence[int]) -> list[asyncio.Future[int]]:
        put: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if destination == "here":
            put.set_result(1)
        else:
            self.late.append(put)
            asyncio.get_running_loop().create_task(self._later(put))
        return [put]

    async def _later(self, put: asyncio.Future[int]) -> None:
        while not self._ended():
            await asyncio.sleep(0)
        for _ in range(5):  # the key is given up meanwhile
            await asyncio.sleep(0)
        if self.error is not None:
            put.set_exception(self.error)
        else:
            put.set_result(1)


@pytest.mark.parametrize("error", [None, Unavailable("away")])
async def test_mail_leaves_the_mailbox_though_its_reply_is_published_later_and_an_outage_is_heard_of(
    rig: Rig, error: Exception | None
) -> None:
    attempt = await begun(await hold(rig))
    lease, parts = attempt.lease, attempt.parts
    parts.publisher = publisher = SlowPublisher(rig, lambda: lease.ended)
    publisher.error = error
    told = publish_and_acknowledge(lease, parts, {"here": [1], "there": [2]}, [attempt.mail.seq], 1)
    if error is not None:
        with pytest.raises(Unavailable):
            await told
    else:
        await told
    assert lease.ended and not lease.lost and await lease.look(10) == []
    assert [put.done() for put in publisher.late] == [True]


async def test_a_key_of_an_agent_that_is_no_longer_there_is_answered_by_no_other(rig: Rig) -> None:
    parts, other = rig.parts(), rig.parts()
    parts.other_agents = {"cook": other}
    assert parts.for_key(key_of()) is parts
    assert parts.for_key("agent:cook:webhook:dm:c1") is other
    gone = parts.for_key("agent:gone:webhook:dm:c1")
    assert isinstance(gone.agent, Missing) and gone.worker == parts.worker and gone.pipe is parts.pipe


@pytest.mark.parametrize(
    ("has_model", "has_context", "enabled", "notes"),
    [
        (False, False, True, None),
        (False, True, True, ""),
        (True, False, True, "agent:main:webhook:other:memory:u=u1"),
        (True, True, False, ""),
    ],
)
async def test_notes_are_read_only_for_a_model_that_is_told_them(
    make_settings: Callable[..., Settings], has_model: bool, has_context: bool, enabled: bool, notes: str | None
) -> None:
    async with open_pipeline(make_settings(memory=MemorySettings(enabled=enabled))) as pipe:
        some: Any = object()
        agent = Rig(pipe).parts().agent
        parts = TurnParts(pipe, agent, agent, "test", some if has_model else None, some if has_context else None)
        assert parts.notes_of(key_of(), an_inbound()) == notes
        alone = replace(an_inbound(), terms=Terms(history=()))  # a request of which nothing is kept
        assert parts.notes_of(key_of(), alone) == (notes and "")
