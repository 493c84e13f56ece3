"""Connections whose platform never brings anything again: what came is on disk until it is settled."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import orjson
import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from producers.heard import Event, Heard
from producers.listening import Connection, Listener
from producers.spool import Spool, spool_path
from producers.spool_file import SpoolFile
from shared import keys
from shared.codec import message_id
from shared.errors import Denied, Malformed, RateLimited, Transient, Unavailable
from shared.failpoints import Injected
from shared.leader import Leader
from shared.messages import Inbound, Source
from shared.pipeline import Pipeline, open_pipeline
from shared.platforms.webhook import WebhookSettings
from shared.settings import Settings
from tests.conftest import WEBHOOK_SECRET
from tests.store.books import ask
from tests.support.servers import Databases

Foreseen = Callable[[str], None]
WAIT_SECONDS = 60.0


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


class Gateway(Connection):
    """Brings each event once. The platform is `webhook`, where whoever sends may talk."""

    name = "webhook"
    credential = "account-1"
    spools = True

    def __init__(self) -> None:
        self._events: asyncio.Queue[Event | Exception] = asyncio.Queue()
        self.connections = 0
        self.open = 0
        self.confirmed: list[str] = []

    def bring(self, *texts: str | Event | Exception) -> None:
        for text in texts:
            event = Event(text, {"text": text}, "c1", raw=text.encode()) if isinstance(text, str) else text
            self._events.put_nowait(event)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        self.connections += 1
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1

    async def next(self) -> Sequence[Event]:
        event = await self._events.get()
        if isinstance(event, Exception):
            raise event
        return (event,)

    async def confirm(self, events: Sequence[Event]) -> None:
        self.confirmed += [event.ref for event in events]

    def normalise(self, event: Event, received_at: int) -> Heard:
        if event.ref == "poison":
            raise Malformed("poison")
        if event.ref == "stumble":
            raise IndexError("string index out of range")
        source = Source(self.name, "c1", user="u1")
        return Inbound(message_id(self.name, "", event.ref), event.ref, source, event.fields["text"])


@asynccontextmanager
async def listening(pipe: Pipeline, gateway: Gateway) -> AsyncIterator[None]:
    stopping = asyncio.Event()
    running = asyncio.create_task(Listener(pipe, gateway).run(stopping))
    try:
        yield
    finally:
        stopping.set()
        await running


async def texts(pipe: Pipeline) -> list[str]:
    rows = await ask(pipe.store, "SELECT payload FROM inbox ORDER BY seq")
    return [orjson.loads(row["payload"])["inbound"]["text"] for row in rows]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


async def until_kept(pipe: Pipeline, count: int) -> list[str]:
    async with asyncio.timeout(WAIT_SECONDS):
        while len(found := await texts(pipe)) < count:
            await asyncio.sleep(0.01)
    return found


def file_of(pipe: Pipeline) -> Path:
    return spool_path(pipe.settings.data_dir, Gateway.name, Gateway.credential)


def journal_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(here: str) -> None:
        if here == "accept.before_journal":
            raise Unavailable("the database is away")

    monkeypatch.setattr("shared.door.reach", away)


async def test_while_the_journal_is_away_the_connection_is_held_and_what_comes_is_on_disk(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway()
    async with listening(pipe, gateway):
        with monkeypatch.context() as patch:
            journal_is_away(patch)
            gateway.bring("1", "2", "3")
            await until(lambda: gateway.confirmed == ["1", "2", "3"])
            assert file_of(pipe).read_bytes().count(b"}\n") == 3
            assert (gateway.connections, gateway.open, await texts(pipe)) == (1, 1, [])
        assert await until_kept(pipe, 3) == ["1", "2", "3"]
        await until(lambda: file_of(pipe).read_bytes() == b"")
    assert gateway.connections == 1


async def test_what_a_process_could_not_settle_its_successor_does_first(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Gateway(), Gateway()
    with monkeypatch.context() as patch:
        journal_is_away(patch)
        async with listening(pipe, first):
            first.bring("1", "2")
            await until(lambda: first.confirmed == ["1", "2"])
    second.bring("3")
    async with listening(pipe, second):
        assert await until_kept(pipe, 3) == ["1", "2", "3"]


@pytest.mark.parametrize(
    "point", ["spool.before_keep", "spool.after_keep", "spool.before_forget", "spool.after_forget"]
)
async def test_an_error_at_any_step_loses_and_doubles_nothing(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, foreseen: Foreseen, point: str
) -> None:
    reached: list[str] = []

    def fail_once(here: str) -> None:
        reached.append(here)
        if here == point and reached.count(point) == 1:
            raise Injected(point)

    foreseen("spool")
    monkeypatch.setattr("producers.spool.reach", fail_once)
    gateway = Gateway()
    async with listening(pipe, gateway):
        gateway.bring("1", "2", "3")
        assert await until_kept(pipe, 3) == ["1", "2", "3"]
    assert point in reached and await texts(pipe) == ["1", "2", "3"]


async def test_a_connection_that_breaks_is_opened_again_and_loses_nothing_that_came(pipe: Pipeline) -> None:
    gateway = Gateway()
    gateway.bring("1", Transient("cut"), "2")
    async with listening(pipe, gateway):
        assert await until_kept(pipe, 2) == ["1", "2"]
    assert (gateway.connections, gateway.open) == (2, 0)


async def test_a_listener_that_cannot_connect_says_so_with_host_and_reason_and_says_when_it_listens(
    make_settings: Callable[..., Settings],
) -> None:
    class Unanswered(Gateway):
        @asynccontextmanager
        async def connected(self) -> AsyncIterator[None]:
            self.connections += 1
            if self.connections in (1, 4):
                raise Transient("no connection to signal.example:8090 (Connection refused)")
            if self.connections == 3:
                raise RateLimited(timedelta(0)) from Transient("HTTP 503")
            yield

    url, secret = "https://ann:secret@callback.example/secret", SecretStr(WEBHOOK_SECRET)
    gateway, block = Unanswered(), WebhookSettings(callback_url=url, secrets=(secret,))
    async with open_pipeline(make_settings(webhook=block)) as pipe, listening(pipe, gateway):
        with capture_logs() as lines:
            await until(lambda: gateway.connections == 2)
            gateway.bring("1", Transient("cut"))
            await until(lambda: gateway.connections == 5)
            gateway.bring("2")
            assert await until_kept(pipe, 2) == ["1", "2"]
    said = [(line["event"].partition(" in ")[0], line.get("reason")) for line in lines if "platform" in line]
    refused = ("not connected, trying again", "no connection to signal.example:8090 (Connection refused)")
    lost = [("not connected, trying again", reason) for reason in ("cut", "HTTP 503")]
    assert said == [refused, ("listening", None), *lost, refused, ("listening", None)]
    assert all(line["host"] == "callback.example" for line in lines if line["event"].startswith("not connected"))


async def test_a_platform_that_asks_for_no_wait_for_ever_is_asked_ever_less_often(pipe: Pipeline) -> None:
    class Hurrying(Gateway):
        @asynccontextmanager
        async def connected(self) -> AsyncIterator[None]:
            self.connections += 1
            if self.connections <= 3:
                raise RateLimited(timedelta(0))
            yield

    gateway = Hurrying()
    with capture_logs() as lines:
        async with listening(pipe, gateway):
            await until(lambda: gateway.connections == 4)
    waits = [float(line["event"].split()[-2]) for line in lines if line["event"].startswith("not connected")]
    assert len(waits) == 3 and 0 < waits[0] <= waits[1] < waits[2]


async def test_what_cannot_be_understood_does_not_stay_in_the_spool(pipe: Pipeline) -> None:
    gateway = Gateway()
    async with listening(pipe, gateway):
        gateway.bring("poison", "1")
        await until_kept(pipe, 1)
        await until(lambda: file_of(pipe).read_bytes() == b"")
    [letter] = await ask(pipe.store, "SELECT kind, ref, reason FROM dead")
    assert letter == {"kind": "request", "ref": "poison", "reason": "malformed"}


async def test_an_event_that_our_own_code_stumbles_over_is_recorded_and_holds_up_nothing(
    pipe: Pipeline, foreseen: Foreseen
) -> None:
    foreseen("normalise")
    gateway = Gateway()
    with capture_logs() as lines:
        async with listening(pipe, gateway):
            gateway.bring("stumble", "1")
            assert await until_kept(pipe, 1) == ["1"]
            await until(lambda: file_of(pipe).read_bytes() == b"")
    [letter] = await ask(pipe.store, "SELECT kind, ref, reason, payload FROM dead")
    assert letter == {"kind": "request", "ref": "stumble", "reason": "malformed", "payload": "stumble"}
    assert [type(line["exc_info"]) for line in lines if line.get("loop") == "normalise"] == [IndexError]


async def test_an_event_that_is_nested_too_deeply_is_recorded_and_holds_up_nothing(
    pipe: Pipeline, foreseen: Foreseen
) -> None:
    foreseen("spool")  # the file does not take it either
    gateway = Gateway()
    async with listening(pipe, gateway):
        gateway.bring(Event("poison", orjson.loads('{"a":' * 300 + "1" + "}" * 300), "c1"), "1")
        assert await until_kept(pipe, 1) == ["1"]
    [letter] = await ask(pipe.store, "SELECT kind, ref, reason FROM dead")
    assert letter == {"kind": "request", "ref": "poison", "reason": "malformed"}


async def test_a_disk_that_takes_nothing_costs_safety_and_no_message(pipe: Pipeline) -> None:
    file_of(pipe).parent.write_text("a file where the directory should be")
    gateway = Gateway()
    gateway.bring("1", "2")
    async with listening(pipe, gateway):
        assert await until_kept(pipe, 2) == ["1", "2"]


async def test_a_standby_on_the_same_machine_settles_what_the_leader_left_when_it_died(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standby had started, and had looked into the spool, before anything was in it."""
    first, second = Gateway(), Gateway()
    leader = asyncio.create_task(Listener(pipe, first).run(asyncio.Event()))
    await until(lambda: first.open)
    async with listening(pipe, second):
        with monkeypatch.context() as patch:
            journal_is_away(patch)
            first.bring("1", "2")
            await until(lambda: first.confirmed == ["1", "2"])
            leader.cancel()
            await asyncio.gather(leader, return_exceptions=True)
            second.bring("3")
            await until(lambda: second.confirmed == ["3"])
        assert await until_kept(pipe, 3) == ["1", "2", "3"]
    assert await texts(pipe) == ["1", "2", "3"]


async def test_a_connection_that_breaks_while_the_journal_is_away_is_opened_again(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway()
    async with listening(pipe, gateway):
        with monkeypatch.context() as patch:
            journal_is_away(patch)
            gateway.bring("1", Transient("cut"), "2")
            await until(lambda: gateway.confirmed == ["1", "2"])
            assert (gateway.connections, gateway.open, await texts(pipe)) == (2, 1, [])
        assert await until_kept(pipe, 2) == ["1", "2"]


async def test_what_is_in_the_spool_is_settled_while_another_machine_leads(pipe: Pipeline) -> None:
    await keep(file_of(pipe), "1", "2")
    settings, name = pipe.settings, keys.listener(Gateway.name, Gateway.credential)
    gateway = Gateway()
    async with Leader(pipe.servers, name, ttl=settings.lease, every=settings.heartbeat) as elsewhere:
        await elsewhere.leads.wait()
        async with listening(pipe, gateway):
            assert await until_kept(pipe, 2) == ["1", "2"]
    assert gateway.connections == 0


async def test_what_is_in_the_spool_is_settled_while_the_platform_refuses_the_connection(pipe: Pipeline) -> None:
    class Refused(Gateway):
        @asynccontextmanager
        async def connected(self) -> AsyncIterator[None]:
            raise Denied("the token is not valid")
            yield

    await keep(file_of(pipe), "1", "2")
    async with listening(pipe, Refused()):
        assert await until_kept(pipe, 2) == ["1", "2"]


async def test_two_processes_never_write_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    first, second = Spool(path), Spool(path)
    await first.keep([Event("1", {})])
    await second.keep([Event("2", {})])
    await second.adopt()
    assert [event.ref for event in second.waiting] == ["2"]
    await second.forget(1)
    first.close()
    await second.adopt()
    assert [event.ref for event in second.waiting] == ["1"]
    second.close()
    assert await kept_in(path) == ["1"]


@pytest.mark.parametrize("point", ["spool.before_adopt", "spool.after_adopt"])
async def test_a_process_that_dies_while_it_takes_over_a_file_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    def fail(here: str) -> None:
        if here == point:
            raise Injected(point)

    path = tmp_path / "x.jsonl"
    ended, dying = Spool(path), Spool(path)
    await ended.keep([Event("1", {})])
    await dying.keep([Event("2", {})])
    ended.close()
    monkeypatch.setattr("producers.spool.reach", fail)
    with pytest.raises(Injected):
        await dying.adopt()
    monkeypatch.undo()
    dying.close()
    assert set(await kept_in(path)) == {"1", "2"}


async def keep(path: Path, *refs: str) -> None:
    """As a process does that ends then."""
    spool = Spool(path)
    await spool.keep([Event(ref, {"text": ref}, "c1") for ref in refs])
    spool.close()


async def waiting_in(path: Path) -> list[Event]:
    """What a process that starts now finds."""
    spool = Spool(path)
    await spool.adopt()
    spool.close()
    return list(spool.waiting)


async def kept_in(path: Path) -> list[str]:
    return [event.ref for event in await waiting_in(path)]


async def test_a_line_that_a_crash_cut_off_is_dropped_and_the_others_are_read(tmp_path: Path) -> None:
    path, events = tmp_path / "spool" / "x.jsonl", [Event(str(n), {"n": n}, "c", b"\xff\n") for n in range(3)]
    spool = Spool(path)
    await spool.keep(events)
    spool.close()
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        assert await waiting_in(path) == events[: whole[:cut].count(b"}\n")]
        await keep(path, "next")
        assert (await kept_in(path))[-1] == "next"
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)


@pytest.mark.parametrize(
    "spoiled",
    [
        b'{"ref":"x","fields":{},"chat":"","broken":"","raw":"abc"}',
        b'{"ref":7,"fields":{},"chat":"","broken":""}',
        b'{"ref":"x","fields":[],"chat":"","broken":""}',
        b'{"ref":"x","fields":{},"chat":{},"broken":""}',
        b'{"ref":"x","fields":{},"chat":"","broken":null}',
        b'{"ref":"x"}',
        b"[]",
        b"\0\0\0\0",
    ],
)
async def test_a_line_that_a_disk_spoiled_holds_up_no_other(tmp_path: Path, spoiled: bytes) -> None:
    path = tmp_path / "a.jsonl"
    spool = Spool(path)
    await spool.keep([Event("before", {})])
    spool.close()
    path.write_bytes(path.read_bytes() + spoiled + b"\n")
    spool = Spool(path)
    await spool.keep([Event("after", {})])
    assert [event.ref for event in await spool.next()] == ["before", "after"]
    spool.close()


async def test_the_name_of_a_new_file_is_synced_as_its_content_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    fsync = os.fsync

    def noted(opened: int) -> None:
        fsync(opened)
        synced.append(os.fstat(opened).st_ino)

    monkeypatch.setattr("producers.spool_file.os.fsync", noted)
    path = tmp_path / "spool" / "a.jsonl"
    spool = Spool(path)
    for ref in ("first", "second"):
        await spool.keep([Event(ref, {})])
    assert synced == [found.stat().st_ino for found in (path, path.parent, tmp_path, path)]
    spool.close()


async def test_a_spool_that_is_never_empty_does_not_grow_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producers.spool.REWRITE_BYTES", 1000)
    spool, path = Spool(tmp_path / "x.jsonl"), tmp_path / "x.jsonl"
    await spool.keep([Event("first", {})])
    for n in range(200):
        await spool.keep([Event(str(n), {})])
        await spool.forget(1)
    assert path.stat().st_size < 2000
    spool.close()
    assert (await kept_in(path))[-1] == "199"


async def test_settling_a_large_spool_writes_no_more_than_its_size_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []

    def replace(self: SpoolFile, events: Sequence[Event]) -> None:
        written.append(len(events))

    monkeypatch.setattr("producers.spool.REWRITE_BYTES", 1000)
    monkeypatch.setattr("producers.spool.SpoolFile.replace", replace)
    spool = Spool(tmp_path / "x.jsonl")
    await spool.keep([Event(str(n), {}) for n in range(1000)])
    for _ in range(1000):
        await spool.forget(1)
    spool.close()
    assert written and sum(written) <= 1000
