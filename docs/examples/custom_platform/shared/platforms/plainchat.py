"""Plainchat's facts and settings: a chat over plain HTTP."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import SecretStr, model_validator

from shared.platforms.facts import Facts, Idempotency, Limit
from shared.platforms.settings import ChatSettings
from shared.setting_values import Secrets

NAME = "plainchat"


class PlainchatSettings(ChatSettings):
    """A bot on a Plainchat server."""

    PREFIX = "PLAINCHAT"

    secrets: Secrets = ()
    """What the server signs its requests with; list two to rotate."""
    token: SecretStr | None = None
    """What the bot shows to the server when it sends."""
    api_url: str = "http://127.0.0.1:9000"
    """Where the server is."""

    @model_validator(mode="after")
    def _fits(self) -> PlainchatSettings:
        if (self.enabled or self.secrets or self.token) and not (self.secrets and self.token):
            raise ValueError("PLAINCHAT needs both PLAINCHAT__SECRETS and PLAINCHAT__TOKEN")
        return self

    @property
    def on(self) -> bool:
        return self.token is not None and self.enabled is not False

    @property
    def addresses(self) -> Mapping[str, str]:
        return {NAME: self.api_url} if self.on else {}


FACTS = Facts(
    name=NAME,
    title="Plainchat",
    settings=PlainchatSettings,
    receives=True,
    redelivers=True,
    text_limit=Limit(1000),  # code points
    idempotency=Idempotency.NATIVE,  # the server shows one message per `key`
)
