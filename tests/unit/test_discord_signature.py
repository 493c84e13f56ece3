"""Discord's requests are proved by one Ed25519 signature over time and body, in the one form that its standard allows."""

from __future__ import annotations

import pytest
from nacl.signing import SigningKey

from producers.discord.receive import DiscordReceiver, DiscordSigned
from shared.errors import Denied

KEY = SigningKey(b"\x01" * 32)
BODY, TIME = b'{"type":1}', "1767225600"
GOOD = KEY.sign(TIME.encode() + BODY).signature
ORDER = 2**252 + 27742317777372353535851937790883648493  # of the group: S and S + ORDER would prove the same


def checked(signature: bytes, body: bytes = BODY, time: str = TIME, key: bytes = KEY.verify_key.encode()) -> None:
    DiscordReceiver(key.hex()).check_body(DiscordSigned(time, signature), body)


def test_what_the_application_signed_is_let_in() -> None:
    checked(GOOD)


@pytest.mark.parametrize("place", range(0, 512, 37))
def test_a_signature_with_any_bit_changed_is_denied(place: int) -> None:
    changed = bytearray(GOOD)
    changed[place // 8] ^= 1 << place % 8
    with pytest.raises(Denied):
        checked(bytes(changed))


def test_another_way_to_write_the_same_signature_is_denied() -> None:
    scalar = int.from_bytes(GOOD[32:], "little") + ORDER
    with pytest.raises(Denied):
        checked(GOOD[:32] + scalar.to_bytes(32, "little"))


def test_another_body_time_or_key_is_denied() -> None:
    with pytest.raises(Denied):
        checked(GOOD, body=BODY + b" ")
    with pytest.raises(Denied):
        checked(GOOD, time="1767225601")
    with pytest.raises(Denied):
        checked(GOOD, key=SigningKey(b"\x02" * 32).verify_key.encode())


def test_a_key_that_any_signature_would_fit_lets_nobody_in() -> None:
    with pytest.raises(Denied):
        checked(b"\x01" + bytes(63), key=b"\x01" + bytes(31))  # the neutral element: OpenSSL takes it for every body
