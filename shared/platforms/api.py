"""The HTTP API under /v1: programs post messages and follow their sessions for the replies."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import model_validator

from shared.finding import Finding, ok, warn
from shared.platforms.facts import Facts, Idempotency
from shared.platforms.settings import REFUSED_OF_PROGRAMS, PlatformSettings
from shared.setting_values import Secrets

NAME = "api"
KEY_CHARACTERS = 16  # a shorter key can be guessed


class ApiSettings(PlatformSettings):
    """The HTTP API under /v1."""

    PREFIX = "API"
    REFUSED = REFUSED_OF_PROGRAMS

    keys: Secrets = ()
    """Bearer keys. Unset: the API answers 401 to everybody."""

    @model_validator(mode="after")
    def _fits(self) -> ApiSettings:
        if self.enabled and not self.keys:
            raise ValueError("API__ENABLED needs API__KEYS")
        if not all(key.get_secret_value() for key in self.keys):
            raise ValueError("API__KEYS: an empty key would let everybody in")
        return self

    @property
    def on(self) -> bool:
        return bool(self.keys) and self.enabled is not False

    def findings(self) -> Iterator[Finding]:
        short = sum(len(key.get_secret_value()) < KEY_CHARACTERS for key in self.keys)
        if short:
            fix = f"use at least {KEY_CHARACTERS} random characters in KEYTURN_API__KEYS"
            yield warn("api keys", f"{short} of {len(self.keys)} can be guessed", fix)
        elif self.keys:
            yield ok("api keys", f"{len(self.keys)} set")


FACTS = Facts(
    name=NAME,
    title="API",
    settings=ApiSettings,
    receives=True,
    redelivers=True,
    trusts_sender=True,
    idempotency=Idempotency.NATIVE,  # a reply is a row that its reader follows: there is nothing to send twice
    can_thread=True,
)
