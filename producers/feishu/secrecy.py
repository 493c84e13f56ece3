"""How Feishu signs and encrypts: SHA-256 over time, nonce, key and body; AES-256-CBC under the SHA-256 of the key."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

from producers.heard import parse_json
from shared.errors import Malformed

_BLOCK = 16


def sign(key: bytes, timestamp: str, nonce: str, body: bytes) -> str:
    """The signature of a request, in lower-case hex. Header values are Latin-1, as HTTP has them."""
    return sha256(f"{timestamp}{nonce}".encode("latin-1", "replace") + key + body).hexdigest()


def decrypt(key: bytes, text: str) -> bytes:
    """What was encrypted; Malformed for what this key cannot have encrypted."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Malformed("encrypt is not base64") from None
    if len(data) < 2 * _BLOCK or len(data) % _BLOCK:
        raise Malformed("encrypt has no whole blocks")
    cipher = Cipher(_aes(key), modes.CBC(data[:_BLOCK])).decryptor()
    padded = cipher.update(data[_BLOCK:]) + cipher.finalize()
    padding = PKCS7(8 * _BLOCK).unpadder()
    try:
        return padding.update(padded) + padding.finalize()
    except ValueError:
        raise Malformed("encrypt is not encrypted with our key") from None


@lru_cache(maxsize=16)  # a key, or a few
def _aes(key: bytes) -> algorithms.AES:
    return algorithms.AES(sha256(key).digest())


def opened(keys: Sequence[bytes], fields: dict[str, Any]) -> dict[str, Any]:
    """What a request holds, decrypted if it is encrypted: by whichever key makes sense of it. Malformed otherwise."""
    if not is_encrypted(fields):
        return fields
    secret, error = fields["encrypt"], Malformed("encrypt is not text, or there is no key for it")
    for key in keys if isinstance(secret, str) else ():
        try:
            return parse_json(decrypt(key, secret))
        except Malformed as failed:
            error = failed
    raise error


def is_encrypted(fields: dict[str, Any]) -> bool:
    return "encrypt" in fields
