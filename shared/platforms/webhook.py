"""The generic signed webhook (Standard Webhooks): programs bring messages and get the replies at a callback address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field, model_validator

from shared import signing
from shared.errors import ConfigurationError
from shared.finding import Finding, counted, fail, ok
from shared.platforms.facts import Facts, Idempotency
from shared.platforms.settings import REFUSED_OF_PROGRAMS, PlatformSettings
from shared.setting_values import Secrets

NAME = "webhook"


class WebhookSettings(PlatformSettings):
    """The generic signed webhook (Standard Webhooks)."""

    PREFIX = "WEBHOOK"
    NEEDS = ("SECRETS",)
    REFUSED = REFUSED_OF_PROGRAMS

    secrets: Secrets = ()
    """`whsec_…` secrets. Any of them verifies a request, the first signs the callbacks; list two to rotate."""
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
        return self

    @property
    def on(self) -> bool:
        return bool(self.secrets) and self.enabled is not False

    @property
    def addresses(self) -> Mapping[str, str]:
        return {"callback": self.callback_url} if self.callback_url else {}

    def signing_keys(self) -> list[bytes]:
        """The key bytes of the secrets; ConfigurationError where one is no `whsec_…` secret."""
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
        yield ok(NAME, counted(len(self.secrets), "valid secret", "valid secrets"))
        if self.callback_url and not self.callback_url.startswith(("https://", "http://")):
            yield fail("callback", "the callback URL is not http(s)", "correct KEYTURN_WEBHOOK__CALLBACK_URL")


FACTS = Facts(
    name=NAME,
    title="Webhook",
    settings=WebhookSettings,
    receives=True,
    redelivers=True,
    trusts_sender=True,
    idempotency=Idempotency.NATIVE,  # whoever receives callbacks is told to dedupe by webhook-id
    can_thread=True,
    chat_type_of=lambda chat: "dm",  # unless a message says otherwise
)
