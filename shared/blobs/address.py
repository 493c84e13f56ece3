"""The address of a blob: `blob:<SHA-256 in hexadecimal>/<bytes>`. It names content, and no machine."""

from __future__ import annotations

import re

from shared.value import value

SCHEME = "blob:"
_FORM = re.compile(re.escape(SCHEME) + r"([0-9a-f]{64})/(0|[1-9][0-9]{0,14})")


@value
class Blob:
    """A file that was kept: the digest of its bytes, and how many there are. Its text is its address."""

    digest: str
    size: int

    def __str__(self) -> str:
        return f"{SCHEME}{self.digest}/{self.size}"


def blob_at(address: str) -> Blob | None:
    """The blob that an address names; None for any other address."""
    found = _FORM.fullmatch(address)
    return Blob(found[1], int(found[2])) if found is not None else None
