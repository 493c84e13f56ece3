"""Slack's signature is Slack's: what its own library signs is let in, and nothing else."""

from __future__ import annotations

import time

import pytest
from slack_sdk.signature import SignatureVerifier

from producers.mac import Mac
from producers.slack.signature import check_head, sign, verify
from shared.errors import Denied

SECRET, OTHER = b"8f742231b10e8888abcd99yyyzzz85a5", b"0123456789abcdef0123456789abcdef"
BODY = b"token=x&text=%26%20&command=%2Fnew"


def now(ahead: int = 0) -> str:
    return str(int(time.time()) + ahead)


@pytest.mark.parametrize("body", [BODY, b'{"a": "\xc3\xa9 \\u00e9"}', b"", b"x" * 100_000])
def test_a_signature_that_slacks_library_made_is_good_and_ours_is_to_it(body: bytes) -> None:
    at = now()
    theirs = SignatureVerifier(SECRET.decode()).generate_signature(timestamp=at, body=body)
    assert theirs is not None
    verify([Mac(SECRET)], at, theirs, body)
    assert SignatureVerifier(SECRET.decode()).is_valid(body, at, sign(SECRET, at, body))


def test_the_example_that_slack_publishes_has_its_signature() -> None:
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar"
        b"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com"
        b"%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d"
        b"10d2c447fce8b6703c"
    )
    assert sign(SECRET, "1531420618", body) == "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"


def test_while_a_secret_is_rotated_either_lets_in() -> None:
    for secret in (SECRET, OTHER):
        verify([Mac(SECRET), Mac(OTHER)], at := now(), sign(secret, at, BODY), BODY)


@pytest.mark.parametrize("ahead", [-290, 0, 290])
def test_within_five_minutes_a_request_is_fresh(ahead: int) -> None:
    verify([Mac(SECRET)], at := now(ahead), sign(SECRET, at, BODY), BODY)


@pytest.mark.parametrize("ahead", [-310, 310, 10**9])
def test_a_request_of_another_time_is_refused_though_it_is_signed(ahead: int) -> None:
    with pytest.raises(Denied, match="timestamp"):
        verify([Mac(SECRET)], at := now(ahead), sign(SECRET, at, BODY), BODY)


@pytest.mark.parametrize("at", ["", "x", "-1", "1.5", " 1", "0", "١٢٣", "9" * 400, "1_000", "+5"])
def test_a_time_that_is_none_is_refused_and_breaks_nothing(at: str) -> None:
    with pytest.raises(Denied, match="timestamp"):
        verify([Mac(SECRET)], at, "v0=" + "0" * 64, BODY)


def test_what_was_not_signed_so_is_refused() -> None:
    at = now()
    good = sign(SECRET, at, BODY)
    wrong = ["", "v0=", good[3:], good.upper(), good + "0", good[:-1], "v1" + good[2:], "v0=" + "é" * 64, f"{good} "]
    wrong += [
        sign(OTHER, at, BODY),
        sign(SECRET, at, BODY + b" "),
        sign(SECRET, str(int(at) - 1), BODY),
        "v0=" + "0" * 64,
    ]
    for signature in wrong:
        with pytest.raises(Denied, match="signature"):
            verify([Mac(SECRET)], at, signature, BODY)
    with pytest.raises(Denied):
        verify([], at, good, BODY)


def test_a_head_that_cannot_be_slacks_is_refused_before_the_body_is_read() -> None:
    check_head(now(), "v0=" + "0" * 64)
    with pytest.raises(Denied):
        check_head(now(), "v0=short")
