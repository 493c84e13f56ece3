"""The schemes by which programs prove their requests to the generic webhook, where they do not speak Standard Webhooks."""

from __future__ import annotations

import base64
import hmac
import time
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.requests import Request

from producers.webhook.openapi import receive_operation
from producers.webhook.proofs import SchemeProof, TokenProof, WebhookProof, proof_by
from shared.errors import Denied
from shared.platforms.webhook import WebhookSettings

SECRET, OTHER = "It's a Secret to Everybody", "another one to everybody"
BODY = b"Hello, World!"


def block(scheme: str, *secrets: str, **changes: Any) -> WebhookSettings:
    kept = tuple(SecretStr(secret) for secret in secrets or (SECRET,))
    return WebhookSettings(secrets=kept, scheme=scheme, **changes)  # type: ignore[arg-type]


def proof(settings: WebhookSettings) -> WebhookProof:
    return proof_by(settings.verified_by, settings.signing_keys())


def proves(by: WebhookProof, body: bytes, **headers: str) -> str:
    """The id of the event that a request with these headers brings; Denied if it is not proved."""
    pairs = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    head = by.head(Request({"type": "http", "method": "POST", "path": "/", "headers": pairs}))
    by.check(head, body)
    return head.id


def digest(content: bytes, secret: str = SECRET, name: str = "sha256") -> bytes:
    return hmac.digest(secret.encode(), content, name)


def test_githubs_own_example_is_let_in() -> None:
    """From GitHub's page on validating webhook deliveries."""
    signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    by = proof(block("github"))
    assert proves(by, BODY, x_hub_signature_256=signature, x_github_delivery="72d3162e") == "72d3162e"
    assert proves(by, BODY, x_hub_signature_256=signature) == ""  # the body may name its id
    for wrong in (
        signature[:-1] + "8",
        signature.removeprefix("sha256="),
        signature.upper(),
        ",".join([signature] * 9),
    ):
        with pytest.raises(Denied):
            proves(by, BODY, x_hub_signature_256=wrong)
    with pytest.raises(Denied):
        proves(by, BODY + b" ", x_hub_signature_256=signature)
    with pytest.raises(Denied):
        proves(by, BODY, x_hub_signature_256=signature, x_github_delivery="a" * 300)


def test_a_signed_time_is_part_of_what_is_signed_and_goes_stale() -> None:
    by, now = proof(block("stripe")), int(time.time())
    good = digest(f"{now}.".encode() + BODY).hex()
    proves(by, BODY, stripe_signature=f"t={now},v1={'0' * 64},v1={good},v0=x")
    old = digest(f"{now - 301}.".encode() + BODY).hex()
    for wrong in (f"t={now + 1},v1={good}", f"v1={good}", f"t={now},t={now},v1={good}", f"t={now - 301},v1={old}"):
        with pytest.raises(Denied):
            proves(by, BODY, stripe_signature=wrong)
    patient = proof(block("stripe", tolerance_seconds=400))
    proves(patient, BODY, stripe_signature=f"t={now - 301},v1={old}")


def test_header_prefix_digest_encoding_and_content_can_be_set() -> None:
    now = str(int(time.time()))
    changes = {
        "signature_header": "X-Shop-Signature",
        "signature_prefix": "v0=",
        "signature_digest": "sha512",
        "signature_encoding": "base64",
        "signed_content": "v0:{id}:{timestamp}:{body}",
        "timestamp_header": "X-Shop-Time",
        "id_header": "X-Shop-Event",
    }
    by = proof(block("github", **changes))
    signed = base64.b64encode(digest(f"v0:e1:{now}:".encode() + BODY, name="sha512")).decode()
    headers = {"x_shop_signature": f"v0={signed}", "x_shop_time": now, "x_shop_event": "e1"}
    assert proves(by, BODY, **headers) == "e1"
    for missing in headers:
        with pytest.raises(Denied):
            proves(by, BODY, **{name: value for name, value in headers.items() if name != missing})
    with pytest.raises(Denied):
        proves(by, BODY, **{**headers, "x_shop_event": "e2"})
    names = [parameter["name"] for parameter in receive_operation(block("github", **changes).verified_by)["parameters"]]
    assert names == ["x-shop-signature", "x-shop-time", "x-shop-event"]


@pytest.mark.parametrize("prefix", ["HMAC ", "v1,", "Signature, "])
def test_a_prefix_with_a_space_or_a_comma_in_it_is_a_prefix(prefix: str) -> None:
    """As Microsoft Teams signs: `Authorization: HMAC <base64>`."""
    changes = {"signature_header": "Authorization", "signature_prefix": prefix, "signature_encoding": "base64"}
    by, signature = proof(block("github", **changes)), base64.b64encode(digest(BODY)).decode()
    proves(by, BODY, authorization=f"{prefix}{signature}")
    for wrong in (signature, f"{prefix}{signature[:-2]}A=", f"{prefix}{signature} more", f"x{prefix}{signature}"):
        with pytest.raises(Denied):
            proves(by, BODY, authorization=wrong)


def test_a_body_with_placeholders_in_it_is_signed_byte_for_byte() -> None:
    by, body, now = proof(block("stripe")), b"{timestamp} {id} {body} \xff", int(time.time())
    proves(by, body, stripe_signature=f"t={now},v1={digest(f'{now}.'.encode() + body).hex()}")


def test_a_token_lets_in_with_its_prefix_and_nothing_else_does() -> None:
    by = proof(block("token", SECRET, OTHER, signature_header="Authorization", signature_prefix="Bearer "))
    assert isinstance(by, TokenProof) and not by.needs_body
    for secret in (SECRET, OTHER):
        proves(by, BODY, authorization=f"Bearer {secret}")
    for wrong in (SECRET, f"bearer {SECRET}", f"Bearer {SECRET} ", "Bearer ", "Bearer \xff"):
        with pytest.raises(Denied):
            proves(by, BODY, authorization=wrong)


def test_both_secrets_verify_and_which_one_it_was_is_known() -> None:
    by, now = proof(block("stripe", SECRET, OTHER)), int(time.time())
    assert isinstance(by, SchemeProof)
    for secret in (SECRET, OTHER):
        header = f"t={now},v1={digest(f'{now}.'.encode() + BODY, secret).hex()}"
        request = Request(
            {"type": "http", "method": "POST", "path": "/", "headers": [(b"stripe-signature", header.encode())]}
        )
        assert by.key(by.head(request), BODY) == secret.encode()


@pytest.mark.parametrize(
    ("scheme", "secrets", "changes", "words"),
    [
        ("github", (), {}, "SCHEME needs WEBHOOK__SECRETS"),
        ("github", ("short",), {}, "16 characters"),
        ("standard", (SECRET,), {"signature_header": "X-A"}, "SIGNATURE_HEADER would do nothing"),
        ("token", (SECRET,), {"signed_content": "{body}"}, "SIGNED_CONTENT would do nothing"),
        ("github", (SECRET,), {"signed_content": "{timestamp}"}, "{body} in it, once"),
        ("github", (SECRET,), {"timestamp_header": "X-Time"}, "needs {timestamp}"),
        ("stripe", (SECRET,), {"signed_content": "{id}.{body}"}, "ID_HEADER is missing"),
        ("github", (SECRET,), {"signature_header": "X A"}, "signature_header"),
        ("github", (SECRET,), {"tolerance_seconds": 60}, "TOLERANCE_SECONDS would do nothing"),
        ("stripe", (SECRET,), {"signature_prefix": "Bearer "}, "TIMESTAMP_HEADER is needed"),
    ],
)
def test_a_scheme_that_could_not_protect_is_refused_at_start(
    scheme: str, secrets: tuple[str, ...], changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError) as refused:
        WebhookSettings(secrets=tuple(map(SecretStr, secrets)), scheme=scheme, **changes)  # type: ignore[arg-type]
    assert words in str(refused.value)
