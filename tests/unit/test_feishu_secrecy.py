"""Feishu's signature and encryption are Feishu's: its published example is read, and nothing that was changed is."""

from __future__ import annotations

import base64
import hashlib

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.feishu.secrecy import decrypt, opened, sign
from shared.errors import Malformed
from tests.support.feishu import encrypted, signed

KEY = "test key"
EXAMPLE = "P37w+VZImNgPEO1RBhJ6RtKl7n6zymIbEG1pReEzghk="  # of Feishu's documentation


def test_the_example_that_feishu_publishes_is_decrypted() -> None:
    assert decrypt(KEY.encode(), EXAMPLE) == b"hello world"


@given(st.binary(max_size=200), st.text("abc !", min_size=1, max_size=40))
def test_whatever_was_encrypted_is_what_comes_out(body: bytes, key: str) -> None:
    assert decrypt(key.encode(), orjson.loads(encrypted(body, key))["encrypt"]) == body


@pytest.mark.parametrize(
    "text",
    ["", "x", "é", "====", EXAMPLE[:-4], EXAMPLE + "AAAA", base64.b64encode(b"\0" * 16).decode(), f" {EXAMPLE}"]
    + [base64.b64encode(b"\0" * n).decode() for n in (31, 33, 47)],
)
def test_what_cannot_have_been_encrypted_is_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        decrypt(KEY.encode(), text)


@given(st.text(max_size=100))
def test_no_text_is_too_odd_to_refuse(text: str) -> None:
    with pytest.raises(Malformed):
        opened([b"a", b"b"], {"encrypt": text})


@pytest.mark.parametrize("secret", [None, 5, [], {}, EXAMPLE])
def test_what_holds_no_object_is_malformed(secret: object) -> None:
    with pytest.raises(Malformed):
        opened([KEY.encode()], {"encrypt": secret})


def test_while_a_key_is_rotated_either_opens() -> None:
    for key in ("one", "two"):
        assert opened([b"one", b"two"], orjson.loads(encrypted(b'{"a":1}', key))) == {"a": 1}
    with pytest.raises(Malformed):
        opened([], orjson.loads(encrypted(b'{"a":1}', "one")))


def test_what_is_not_encrypted_is_taken_as_it_is() -> None:
    assert opened([b"one"], {"a": 1}) == {"a": 1}


@pytest.mark.parametrize("body", [b"", b"{}", '{"text":"你好"}'.encode(), b"\xff\0"])
def test_a_signature_is_the_plain_digest_of_time_nonce_key_and_body(body: bytes) -> None:
    expected = hashlib.sha256(b"1700000000" + b"nonce" + KEY.encode() + body).hexdigest()
    assert sign(KEY.encode(), "1700000000", "nonce", body) == expected
    headers = signed(body, KEY)
    at, nonce = headers["X-Lark-Request-Timestamp"], headers["X-Lark-Request-Nonce"]
    assert sign(KEY.encode(), at, nonce, body) == headers["X-Lark-Signature"]
