"""What a mailbox may hold: each kind is written and read in one place, and older records are still read."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pytest

from shared.errors import Malformed
from shared.mail import Content, TakeNotes, decode_inbound, decode_mail, encode_mail
from shared.messages import Inbound, Source
from shared.part_record import PartRecord, encode_part

INBOUND = Inbound("in_1", "evt_1", Source("webhook", "c1", user="u1"), "hello", received_at=1)
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("content", [INBOUND, TakeNotes("ses_1")])
def test_every_kind_of_mail_comes_back_as_it_was(content: Content) -> None:
    assert decode_mail(encode_mail(content)) == content


@pytest.mark.parametrize(
    ("record", "content"),
    [
        (b'{"flush":"ses_1"}', TakeNotes("ses_1")),
        (b'{"v":1,"inbound":{"id":"i","event_id":"e","source":{"platform":"x","chat":"c"},"text":"t","media":[]}}',
         Inbound("i", "e", Source("x", "c"), "t")),
    ],
)  # fmt: skip
def test_records_of_the_first_form_are_still_read(record: bytes, content: Content) -> None:
    assert decode_mail(record) == content


def test_a_record_says_only_what_is_not_at_its_default() -> None:
    said = orjson.loads(encode_mail(INBOUND))["inbound"]
    assert said == {
        "id": "in_1",
        "event_id": "evt_1",
        "source": {"platform": "webhook", "chat": "c1", "user": "u1"},
        "text": "hello",
        "media": [],  # in every record: readers of the version before ask for it
        "received_at": 1,
    }
    part = orjson.loads(encode_part(PartRecord(INBOUND.source, ("evt_1",), 1, 1, "hi")))
    assert part.keys() == {"v", "source", "in_reply_to", "part", "parts", "text", "media"}
    assert part["source"] == said["source"]


def test_equal_notes_to_take_have_equal_records_so_that_a_mailbox_holds_them_once() -> None:
    assert encode_mail(TakeNotes("ses_1")) == encode_mail(TakeNotes("ses_1")) != encode_mail(TakeNotes("ses_2"))


@pytest.mark.parametrize("found", [None, 1, [], {}, True])
def test_notes_to_take_of_no_session_are_malformed(found: object) -> None:
    with pytest.raises(Malformed):
        decode_mail(orjson.dumps({"v": 1, "flush": found}))


def test_notes_to_take_are_no_inbound() -> None:
    with pytest.raises(Malformed, match="another kind"):
        decode_inbound(encode_mail(TakeNotes("ses_1")))


def test_no_other_module_tells_kinds_of_mail_apart_by_their_bytes() -> None:
    sniffs = re.compile(r"""startswith\(b["']{|["']{"(v|flush|inbound)""")
    for folder in ("producers", "workers", "shared", "keyturn"):
        for path in (ROOT / folder).rglob("*.py"):
            if path != ROOT / "shared" / "mail.py":
                assert not sniffs.search(path.read_text()), path
