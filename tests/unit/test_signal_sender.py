"""What signal-cli is asked for a part, and when the part counts as sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from shared.errors import Ambiguous, PipelineError, RateLimited, Transient, Undeliverable
from shared.messages import Media
from shared.platforms.signal import FACTS
from shared.platforms.signal_api import Daemon
from tests.support.scripted_api import Scripted, a_part
from tests.support.uploads import no_files
from workers.delivery.signal import SignalSender

SENT = {"timestamp": 17, "results": [{"type": "SUCCESS"}]}


def signal(*answers: Any) -> tuple[SignalSender, Scripted]:
    daemon = Scripted(*answers)
    return SignalSender(cast(Daemon, daemon), no_files(FACTS)), daemon


def reached(*types: str) -> dict[str, Any]:
    return {"timestamp": 17, "results": [{"type": kind, "retryAfterSeconds": 30} for kind in types]}


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (("SUCCESS", "NETWORK_FAILURE"), None),
        (("NETWORK_FAILURE", "UNREGISTERED_FAILURE"), Transient),
        (("INVALID_PRE_KEY_FAILURE",), Transient),
        (("UNREGISTERED_FAILURE",), Undeliverable),
        (("IDENTITY_FAILURE", "OTHER"), Undeliverable),
        (("NETWORK_FAILURE", "RATE_LIMIT_FAILURE"), RateLimited),
        ((), None),
    ],
)
async def test_a_part_is_sent_on_signal_if_somebody_was_reached(types: tuple[str, ...], expected: Any) -> None:
    sender, _ = signal(reached(*types))
    part = a_part("signal", "group:g1", "group", waits=2)
    if expected is None:
        assert (await sender.send(part)).message_id == "17"
        return
    with pytest.raises(PipelineError) as caught:
        await sender.send(part)
    assert type(caught.value) is expected
    if isinstance(caught.value, RateLimited):
        assert caught.value.retry_after.total_seconds() == 32
    if "IDENTITY_FAILURE" in types:
        assert "identity key changed" in str(caught.value) and "OTHER" in str(caught.value)


async def test_signal_is_told_whom_and_in_a_group_what_is_answered() -> None:
    sender, daemon = signal(SENT, SENT, SENT)
    await sender.send(a_part("signal", "+1555", text="**hi**"))
    await sender.send(a_part("signal", "group:g1", "group", answers="16:+1777"))
    await sender.send(replace(a_part("signal", "group:g1", "group", answers="16:+1777"), part=2))
    (_, direct), (_, group), (_, second) = daemon.asked
    assert direct == {"recipient": ["+1555"], "message": "hi", "textStyle": ["0:2:BOLD"]}
    quote = {"quoteTimestamp": 16, "quoteAuthor": "+1777", "quoteMessage": ""}
    assert group == {"groupId": "g1", "message": "hello", **quote} and second == {"groupId": "g1", "message": "hello"}


@pytest.mark.parametrize("answers", [None, "16", "16:", "x:+1777"])
async def test_signal_quotes_nothing_that_it_does_not_know(answers: str | None) -> None:
    sender, daemon = signal(SENT)
    await sender.send(a_part("signal", "group:g1", "group", answers=answers))
    assert daemon.asked[0][1] == {"groupId": "g1", "message": "hello"}


async def test_a_message_on_signal_is_changed_or_said_anew() -> None:
    sender, daemon = signal(SENT)
    assert (await sender.edit(a_part("signal", "+1", edits="16"))).message_id == "16"
    assert daemon.asked[0][1]["editTimestamp"] == 16
    sender, daemon = signal(Undeliverable("no"), SENT)
    assert (await sender.edit(a_part("signal", "+1", edits="16"))).message_id == "17"
    assert "editTimestamp" not in daemon.asked[1][1]
    sender, daemon = signal(SENT)
    assert (await sender.edit(a_part("signal", "+1", edits="words"))).message_id == "17"
    sender, daemon = signal(Ambiguous("x"))
    with pytest.raises(Transient) as caught:
        await sender.edit(a_part("signal", "+1", edits="16"))
    assert type(caught.value) is Transient


@pytest.mark.parametrize("answer", [{}, {"timestamp": "17"}, {"timestamp": True}])
async def test_an_answer_of_signal_without_a_time_may_have_been_one(answer: Any) -> None:
    sender, _ = signal(answer)
    with pytest.raises(Ambiguous):
        await sender.send(a_part("signal", "+1"))


@pytest.mark.parametrize(
    ("media", "expected"),
    [
        (Media("data:image/png;base64,aGk="), {"message": "", "attachments": ["data:image/png;base64,aGk="]}),
        (Media("/etc/passwd"), {"message": "/etc/passwd"}),
        (Media("https://a/b", name="b.pdf"), {"message": "b.pdf: https://a/b"}),
    ],
)
async def test_no_path_is_given_to_signal_as_a_file(media: Media, expected: dict[str, Any]) -> None:
    sender, daemon = signal(SENT)
    await sender.send(a_part("signal", "+1", text="", media=(media,)))
    assert daemon.asked[0][1] == {"recipient": ["+1"], **expected}
