"""A key that was prepared signs as the standard library does."""

from __future__ import annotations

import hmac

import pytest

from producers.mac import Mac


@pytest.mark.parametrize("length", [1, 32, 64, 65, 200])
@pytest.mark.parametrize("parts", [(), (b"",), (b"body",), (b"v0:17:", b"body"), (b"x" * 100_000, b"y")])
def test_a_prepared_key_signs_as_the_standard_library_does(length: int, parts: tuple[bytes, ...]) -> None:
    key = bytes(range(length))
    mac = Mac(key)
    for _ in range(2):  # nothing of a request is left in it for the next one
        assert mac.of(*parts) == hmac.digest(key, b"".join(parts), "sha256")
