"""The generic signed webhook: programs bring messages and get the replies at a callback address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from shared import signing
from shared.errors import ConfigurationError
from shared.finding import Finding, counted, fail, ok
from shared.platforms.facts import Facts, Idempotency
from shared.platforms.settings import REFUSED_OF_PROGRAMS, PlatformSettings
from shared.platforms.webhook_scheme import SchemeName, WebhookScheme, scheme_of
from shared.setting_values import Secrets

NAME = "webhook"
SECRET_CHARACTERS = 16  # a shorter secret can be guessed
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]
_OF_SCHEME = (
    "signature_header",
    "signature_prefix",
    "signature_digest",
    "signature_encoding",
    "signed_content",
    "timestamp_header",
    "id_header",
    "tolerance_seconds",
)


class WebhookSettings(PlatformSettings):
    """The generic signed webhook: Standard Webhooks, or another scheme by which a program can prove its requests."""

    PREFIX = "WEBHOOK"
    NEEDS = ("SECRETS",)
    REFUSED = REFUSED_OF_PROGRAMS

    secrets: Secrets = ()
    """Secrets, `whsec_…` for the scheme `standard`, else of 16 characters or more. Any of them verifies a request, the first
    signs the callbacks; list two to rotate."""
    scheme: SchemeName = "standard"
    """How requests are proved. `standard`: Standard Webhooks. `github`: HMAC of the body in X-Hub-Signature-256. `stripe`:
    `t=…,v1=…` over time and body in Stripe-Signature. `token`: the secret itself in X-Webhook-Token. The settings below
    change what a scheme other than `standard` has."""
    signature_header: HeaderName | None = None
    """The header with the signature, or with the token."""
    signature_prefix: str | None = None
    """What stands before the signature in its header, such as `sha256=`, or before the token, such as `Bearer `."""
    signature_digest: Literal["sha256", "sha512"] | None = None
    """What the HMAC is made with."""
    signature_encoding: Literal["hex", "base64"] | None = None
    """How the signature is written."""
    signed_content: str | None = None
    """What is signed: a text with `{body}` in it, and perhaps `{timestamp}` and `{id}`, such as `{timestamp}.{body}`."""
    timestamp_header: HeaderName | None = None
    """The header with the time in seconds, if it does not stand as `t=` in the signature's."""
    id_header: HeaderName | None = None
    """The header with the event's id. One in the body counts before it."""
    tolerance_seconds: int | None = Field(default=None, ge=1, le=3600)
    """How far a request's time may be away from ours, in seconds; 300 unless set."""
    callback_url: str | None = Field(default=None, repr=False)
    """Where replies are posted. Unset: replies are kept and not sent; `keyturn sessions show` shows them."""
    callback_timeout_seconds: float = Field(default=15, gt=0)
    """How long a callback may take before it counts as unanswered."""

    @model_validator(mode="after")
    def _fits(self) -> WebhookSettings:
        if self.enabled and not self.secrets:
            raise ValueError("WEBHOOK__ENABLED needs WEBHOOK__SECRETS: a receiver without its secret does not start")
        if self.callback_url and not self.secrets:
            raise ValueError("WEBHOOK__CALLBACK_URL needs WEBHOOK__SECRETS: callbacks are signed")
        if self.scheme != "standard" and not self.secrets:
            raise ValueError("WEBHOOK__SCHEME needs WEBHOOK__SECRETS: a receiver without its secret does not start")
        if self.verified_by is not None and any(
            len(secret.get_secret_value()) < SECRET_CHARACTERS or not secret.get_secret_value().isascii()
            for secret in self.secrets
        ):
            raise ValueError(f"WEBHOOK__SECRETS: a secret has {SECRET_CHARACTERS} characters of ASCII or more")
        return self

    @property
    def on(self) -> bool:
        return bool(self.secrets) and self.enabled is not False

    @property
    def addresses(self) -> Mapping[str, str]:
        return {"callback": self.callback_url} if self.callback_url else {}

    @property
    def verified_by(self) -> WebhookScheme | None:
        """How requests are proved; None: by Standard Webhooks."""
        changes = {name: changed for name in _OF_SCHEME if (changed := getattr(self, name)) is not None}
        return scheme_of(self.scheme, changes)

    def signing_keys(self) -> list[bytes]:
        """The key bytes of the secrets; ConfigurationError where one is no secret of the scheme."""
        if self.scheme != "standard":
            return [secret.get_secret_value().encode() for secret in self.secrets]
        try:
            return [signing.decode_secret(secret) for secret in self.secrets]
        except ConfigurationError as error:
            raise ConfigurationError(f"WEBHOOK__SECRETS: {error}") from None

    def check(self) -> None:
        self.signing_keys()

    def findings(self) -> Iterator[Finding]:
        if not self.secrets:
            yield ok(NAME, "not configured")
            return
        try:
            self.signing_keys()
        except ConfigurationError as error:
            yield fail(NAME, str(error), 'make one: echo "whsec_$(head -c 32 /dev/urandom | base64)"')
            return
        scheme = "Standard Webhooks" if self.scheme == "standard" else f"the scheme {self.scheme}"
        yield ok(NAME, f"{counted(len(self.secrets), 'valid secret', 'valid secrets')}, by {scheme}")
        if self.callback_url and not self.callback_url.startswith(("https://", "http://")):
            yield fail("callback", "the callback URL is not http(s)", "correct KEYTURN_WEBHOOK__CALLBACK_URL")


FACTS = Facts(
    name=NAME,
    title="Webhook",
    settings=WebhookSettings,
    receives=True,
    connects=True,
    redelivers=True,
    trusts_sender=True,
    idempotency=Idempotency.NATIVE,  # whoever receives callbacks is told to dedupe by webhook-id
    can_thread=True,
    chat_type_of=lambda chat: "dm",  # unless a message says otherwise
)
