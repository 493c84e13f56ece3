"""Pairing codes: short enough to be read out, too many to be guessed, and known to the store by a salted hash only."""

from __future__ import annotations

import secrets
from hashlib import sha256

from shared.value import value

ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # 32 symbols: no 0 and O, no 1 and I
LENGTH = 8  # 40 bits
SALT_BYTES = 16


@value
class Code:
    """A fresh code. The plain form is for the person alone; the store gets salt and digest."""

    plain: str
    salt: str
    digest: str

    @classmethod
    def fresh(cls) -> Code:
        plain = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))
        salt = secrets.token_hex(SALT_BYTES)
        return cls(plain, salt, digest_of(salt, plain))

    @property
    def turn_id(self) -> str:
        """The turn that the part which tells the code belongs to."""
        return turn_id_of(self.salt)


def digest_of(salt: str, code: str) -> str:
    """What is stored of a code."""
    return sha256(f"{salt}:{code}".encode(errors="replace")).hexdigest()


def turn_id_of(salt: str) -> str:
    """The turn of the part that tells the code with this salt; pairing.sql makes the same."""
    return f"pair_{salt}"
