"""Standard Webhooks signatures: whoever has no secret gets nothing past them."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence

import pytest
from pydantic import SecretStr
from starlette.requests import Request

from producers.webhook.proofs import StandardProof
from shared.errors import ConfigurationError, Denied
from shared.signing import TOLERANCE_SECONDS, check_head, decode_secret, sign

KEY, OTHER = b"0123456789abcdef", b"fedcba9876543210"
BODY = b'{"text": "hello"}'


def now(ahead: int = 0) -> int:
    return int(time.time()) + ahead


def verify(keys: Sequence[bytes], id: str, timestamp: str, signatures: str, body: bytes) -> None:
    """As the receiver of webhooks does: first what the headers say, then the body."""
    proof, headers = StandardProof(keys), {"id": id, "timestamp": timestamp, "signature": signatures}
    raw = [(f"webhook-{name}".encode(), value.encode("latin-1")) for name, value in headers.items()]
    proof.check(proof.head(Request({"type": "http", "headers": raw})), body)


def test_the_signature_is_the_one_of_the_specification() -> None:
    """The example of the Standard Webhooks specification."""
    key = decode_secret(SecretStr("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
    body = b'{"test": 2432232314}'
    made = sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_signed_request_is_let_in() -> None:
    at = now()
    verify([KEY], "evt_1", str(at), sign(KEY, "evt_1", at, BODY), BODY)


def test_any_of_our_secrets_and_any_of_the_given_signatures_will_do() -> None:
    at = now()
    ours, foreign = sign(KEY, "evt_1", at, BODY), sign(b"x" * 16, "evt_1", at, BODY)
    verify([OTHER, KEY], "evt_1", str(at), f"v1a,ed25519 {foreign} {ours}", BODY)


@pytest.mark.parametrize(
    ("id", "body", "key"),
    [("evt_2", BODY, KEY), ("evt_1", BODY + b" ", KEY), ("evt_1", b"", KEY), ("evt_1", BODY, OTHER)],
)
def test_what_differs_from_what_was_signed_is_denied(id: str, body: bytes, key: bytes) -> None:
    at = now()
    with pytest.raises(Denied):
        verify([key], id, str(at), sign(KEY, "evt_1", at, BODY), body)


def test_a_signature_cannot_be_moved_between_id_time_and_body() -> None:
    at = now()
    signed = sign(KEY, f"evt.{at}", at, b"x")  # over "evt.<at>.<at>.x"
    with pytest.raises(Denied):
        verify([KEY], "evt", str(at), signed, f"{at}.x".encode() + b"!")
    with pytest.raises(Denied):
        verify([KEY], "evt", str(at + 1), sign(KEY, "evt", at, BODY), BODY)


@pytest.mark.parametrize("ahead", [-TOLERANCE_SECONDS - 2, TOLERANCE_SECONDS + 30, -(10**9), 10**9])
def test_a_request_out_of_its_time_is_denied_though_signed(ahead: int) -> None:
    at = now(ahead)
    with pytest.raises(Denied):
        verify([KEY], "evt_1", str(at), sign(KEY, "evt_1", at, BODY), BODY)


@pytest.mark.parametrize("ahead", [-TOLERANCE_SECONDS + 60, TOLERANCE_SECONDS - 60])
def test_a_request_within_its_time_is_let_in(ahead: int) -> None:
    at = now(ahead)
    verify([KEY], "evt_1", str(at), sign(KEY, "evt_1", at, BODY), BODY)


@pytest.mark.parametrize(
    "timestamp", ["", "0", "-1", "+1", "1e9", "1.5", "nan", " 1", "1 ", "１２３", "²", "9" * 13, "9" * 10_000, "0x10"]
)
def test_a_timestamp_that_is_no_number_of_seconds_is_denied(timestamp: str) -> None:
    with pytest.raises(Denied):
        check_head("evt_1", timestamp)


def test_a_timestamp_has_one_spelling() -> None:
    at = now()
    with pytest.raises(Denied):
        verify([KEY], "evt_1", f"0{at}", sign(KEY, "evt_1", at, BODY), BODY)


@pytest.mark.parametrize("id", ["", "a" * 257, "a\n", "a\0", "é", "\x7f"])
def test_an_id_that_is_no_printable_word_is_denied(id: str) -> None:
    at = now()
    with pytest.raises(Denied):
        verify([KEY], id, str(at), sign(KEY, id, at, BODY), BODY)


@pytest.mark.parametrize("signatures", ["", " ", "v1,", "v1", "v1,é", "v2,AAAA", "v1," + "A" * 10_000, "\xff" * 100])
def test_a_signature_that_is_none_is_denied(signatures: str) -> None:
    with pytest.raises(Denied):
        verify([KEY], "evt_1", str(now()), signatures, BODY)


def test_without_secrets_nobody_is_let_in() -> None:
    at = now()
    with pytest.raises(Denied):
        verify([], "evt_1", str(at), sign(b"", "evt_1", at, BODY), BODY)


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        "hunter2hunter2hunter2",
        "whsec_" + base64.b64encode(b"short").decode(),
        "whsec_not base64 at all!",
        "whsec_é",
        base64.b64encode(KEY).decode(),
    ],
)
def test_a_secret_that_cannot_work_is_refused_at_start_without_being_shown(secret: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        decode_secret(SecretStr(secret))
    if secret.strip("whsec_"):
        assert secret not in str(caught.value) and secret.removeprefix("whsec_") not in str(caught.value)
    assert caught.value.__cause__ is None
