"""How programs prove their requests to the generic webhook, where they do not speak Standard Webhooks: which header holds the
proof, and what it is made from."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Literal

from shared.value import value

SchemeName = Literal["standard", "github", "stripe", "token"]
TOLERANCE_SECONDS = 300
SEPARATORS = re.compile(r"[,\s]+")  # between the signatures in a header
BODY, TIMESTAMP, ID = "{body}", "{timestamp}", "{id}"  # in the text that is signed


@value
class WebhookScheme:
    """A scheme with everything that may be set about it. No digest: the secret itself stands in the header."""

    signature_header: str
    signature_prefix: str = ""
    signature_digest: str = ""
    signature_encoding: str = "hex"
    signed_content: str = BODY
    timestamp_header: str | None = None  # None: `t=` in the signature's header, where the content has a time
    id_header: str | None = None
    tolerance_seconds: int = TOLERANCE_SECONDS

    @property
    def is_timed(self) -> bool:
        """Whether a request says when it was signed."""
        return TIMESTAMP in self.signed_content

    @property
    def takes_several(self) -> bool:
        """Whether the signature's header may hold several entries. One whose prefix has a separator in it is all there is."""
        return SEPARATORS.search(self.signature_prefix) is None

    def signed(self, id: str, timestamp: str, body: bytes) -> bytes:
        """The bytes that are signed: the body byte for byte, with what stands before and behind it."""
        before, _, behind = (part.replace(TIMESTAMP, timestamp) for part in self.signed_content.partition(BODY))
        return before.replace(ID, id).encode() + body + behind.replace(ID, id).encode()


_SCHEMES = {
    "github": WebhookScheme("x-hub-signature-256", "sha256=", "sha256", id_header="x-github-delivery"),
    "stripe": WebhookScheme("stripe-signature", "v1=", "sha256", signed_content=f"{TIMESTAMP}.{BODY}"),
    "token": WebhookScheme("x-webhook-token"),
}
_OF_TOKENS = ("signature_header", "signature_prefix", "id_header")


def scheme_of(name: SchemeName, changes: dict[str, Any]) -> WebhookScheme | None:
    """The scheme of this name with these changes, None for Standard Webhooks. ValueError for one that cannot work."""
    idle = (
        changes if name == "standard" else [field for field in changes if name == "token" and field not in _OF_TOKENS]
    )
    for field in idle:
        raise ValueError(f"WEBHOOK__{field.upper()} would do nothing with WEBHOOK__SCHEME={name}; take it out")
    if name == "standard":
        return None
    scheme = replace(_SCHEMES[name], **changes)
    if scheme.signed_content.count(BODY) != 1:
        raise ValueError("WEBHOOK__SIGNED_CONTENT has {body} in it, once: what is not signed could be changed")
    if scheme.timestamp_header is not None and not scheme.is_timed:
        raise ValueError("WEBHOOK__TIMESTAMP_HEADER needs {timestamp} in WEBHOOK__SIGNED_CONTENT: it could be changed")
    if "tolerance_seconds" in changes and not scheme.is_timed:
        raise ValueError("WEBHOOK__TOLERANCE_SECONDS would do nothing without {timestamp} in WEBHOOK__SIGNED_CONTENT")
    if scheme.is_timed and scheme.timestamp_header is None and not scheme.takes_several:
        raise ValueError(
            "WEBHOOK__TIMESTAMP_HEADER is needed: beside such a WEBHOOK__SIGNATURE_PREFIX no time can stand"
        )
    if ID in scheme.signed_content and scheme.id_header is None:
        raise ValueError("WEBHOOK__SIGNED_CONTENT has {id} in it, and WEBHOOK__ID_HEADER is missing")
    return scheme
