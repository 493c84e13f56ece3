"""Records that one version writes and another reads, in Redis and SQL: tests/payloads/wire holds what was released."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from shared.address import Address
from shared.errors import Malformed, TooNew
from shared.mail import TakeNotes, decode_mail, encode_mail
from shared.messages import Inbound, Kind, Media, OwnInbound, Source, TaskInbound, Terms
from shared.part_record import PartRecord, decode_part, encode_part

RELEASED = Path(__file__).parents[1] / "payloads/wire"
SOURCE = Source("slack", "C1", "group", "bot", "U1", "alt", "t", "T1", "general", "Ann", "plans")
INBOUND = Inbound(
    id="in_1",
    event_id="evt_1",
    source=SOURCE,
    text="hé\N{PILE OF POO}",
    media=(Media("https://example.org/a.png", "image/png", "a.png"), Media("https://example.org/b")),
    reply_to="evt_0",
    mentioned=False,
    sent_at=1,
    received_at=2,
    message="m_1",
    album="a_1",
    earlier="before",
)
PART = PartRecord(
    source=SOURCE,
    in_reply_to=("evt_1", "evt_2"),
    part=1,
    parts=2,
    text="hello",
    media=(Media("https://example.org/a.png", "image/png", "a.png"),),
    answers="m_1",
    to=Address("slack", "bot", "C2", "t"),
    edits="receipt",
)
NOTES = TakeNotes("ses_1")
TERMS = Terms("helper", "Be kind.", (), ("hi",), True)
OWN = OwnInbound("in_2", "sch_1:60000", Source("schedule", "sch_1"), "news?", purpose=Kind.FIRE, owned_by="slack:u=U1")
EXPIRY = replace(OWN, event_id="question-expired:ask_1_000:0", text="Well?", purpose=Kind.EXPIRY, owned_by=None)
TASK = TaskInbound(
    "in_3", "task_1", Source("task", "task_1"), "look", purpose=Kind.TASK, owned_by="slack:u=U1", asked_by=SOURCE
)
VALUES: dict[str, Any] = {
    "asked": replace(INBOUND, terms=TERMS),
    "expiry": EXPIRY,
    "inbound": INBOUND,
    "own": OWN,
    "take_notes": NOTES,
    "task": TASK,
    "part": PART,
}
VERSIONS = {
    "asked": "shared.mail.ASKED_VERSION",
    "expiry": "shared.mail.EXPIRY_VERSION",
    "inbound": "shared.mail.INBOUND_VERSION",
    "own": "shared.mail.OWN_VERSION",
    "take_notes": "shared.mail.TAKE_NOTES_VERSION",
    "task": "shared.mail.TASK_VERSION",
    "part": "shared.part_record.PART_VERSION",
}
FILES = sorted(RELEASED.glob("*.json"))


def kind_of(path: Path) -> str:
    return path.stem.rpartition("-")[0]


def read(kind: str, record: bytes) -> Any:
    return decode_part(record.decode()) if kind == "part" else decode_mail(record)


def write(kind: str) -> bytes:
    return encode_part(PART).encode() if kind == "part" else encode_mail(VALUES[kind])


def with_unknown_fields(found: Any) -> Any:
    """The record as a later version might write it: with fields that nobody knows yet, in every object of it."""
    if isinstance(found, list):
        return [with_unknown_fields(item) for item in found]
    if isinstance(found, dict):
        return {**{name: with_unknown_fields(value) for name, value in found.items()}, "later": {"a": [1]}}
    return found


def test_every_kind_has_a_released_record() -> None:
    assert {kind_of(path) for path in FILES} == VALUES.keys()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_record_that_was_released_is_read_as_it_was_meant(path: Path) -> None:
    assert read(kind_of(path), path.read_bytes()) == VALUES[kind_of(path)]


@pytest.mark.parametrize("kind", VALUES)
def test_this_version_writes_what_was_released_last(kind: str) -> None:
    """Whoever changes a record raises its version and adds a file, unless older readers may ignore the change."""
    newest = [path for path in FILES if kind_of(path) == kind][-1]
    assert write(kind) == newest.read_bytes()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_fields_that_only_a_later_version_knows_are_ignored(path: Path) -> None:
    record = orjson.dumps(with_unknown_fields(orjson.loads(path.read_bytes())))
    assert read(kind_of(path), record) == VALUES[kind_of(path)]


@pytest.mark.parametrize("kind", VALUES)
def test_the_next_version_of_a_record_is_left_to_newer_processes_which_read_all_earlier_ones(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(VERSIONS[kind], 2)
        record = write(kind)
        assert read(kind, record) == VALUES[kind]
        for path in FILES:
            if kind_of(path) == kind:
                assert read(kind, path.read_bytes()) == VALUES[kind]
    with pytest.raises(TooNew, match="wire version 2"):
        read(kind, record)


def test_who_said_what_a_message_quotes_travels_with_it_and_may_be_missed_by_older_readers() -> None:
    quoting = replace(INBOUND, earlier_by="U2")
    record = orjson.loads(encode_mail(quoting))
    assert decode_mail(orjson.dumps(record)) == quoting and record["v"] == 1
    del record["inbound"]["earlier_by"]
    assert decode_mail(orjson.dumps(record)) == INBOUND
    with pytest.raises(Malformed, match="earlier_by"):
        decode_mail(orjson.dumps({"v": 1, "inbound": {**record["inbound"], "earlier_by": 2}}))


@pytest.mark.parametrize("record", [b'{"v":1,"reminder":{"at":1}}', b'{"remind":"ses_1","v":7}'])
def test_a_kind_of_mail_that_is_not_known_is_left_to_newer_processes(record: bytes) -> None:
    with pytest.raises(TooNew, match="remind"):
        decode_mail(record)


def test_an_inbound_of_ours_with_a_purpose_that_nobody_knows_is_malformed() -> None:
    record = orjson.loads(encode_mail(OWN))
    record["own"]["purpose"] = "to fly"
    with pytest.raises(Malformed, match="purpose"):
        decode_mail(orjson.dumps(record))


@pytest.mark.parametrize(
    "record", [b"{}", b'{"v":1}', b'{"reminder":1}', b'{"v":"2","reminder":1}', b'{"v":true,"x":1}']
)
def test_what_nobody_could_have_written_is_malformed_and_not_newer(record: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        decode_mail(record)
    assert not isinstance(caught.value, TooNew)


@pytest.mark.parametrize("payload", ["", "1", "[]", "{}", '{"v":0}', '{"v":null}', '{"v":1,"source":{}}'])
def test_a_part_that_cannot_be_read_is_malformed_and_not_newer(payload: str) -> None:
    with pytest.raises(Malformed) as caught:
        decode_part(payload)
    assert not isinstance(caught.value, TooNew)
