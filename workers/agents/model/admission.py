"""Asking before a request is sent: the contract between agents and the worker process, which has all workers' requests counted
(workers/limits/admission.py)."""

from __future__ import annotations

from datetime import timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

from shared.codec import encode_json
from shared.value import value

if TYPE_CHECKING:
    from shared.settings import LlmSettings
    from shared.settings.provider_limits import ProviderLimits
    from workers.agents.model.contract import Model


@value
class ProviderAccount:
    """Whom requests are counted for: one model behind one key at one provider. The id does not give the key away."""

    id: str
    provider: str
    model: str
    limits: ProviderLimits

    @classmethod
    def of(cls, model: Model, config: LlmSettings) -> ProviderAccount:
        key = config.api_key.get_secret_value() if config.api_key is not None else ""
        told = encode_json([model.provider, config.base_url or "", key, model.name])
        return cls(blake2b(told, digest_size=12).hexdigest(), model.provider, model.name, config.limits)


@value
class Permit:
    """The right to send one request. `id` is empty where nobody counts."""

    account: ProviderAccount
    id: str = ""
    tokens: int = 0  # that the request is expected to use


class ProviderAdmission(Protocol):
    """Says when requests may be sent."""

    async def admit(self, account: ProviderAccount, tokens: int) -> Permit:
        """Wait until a request may be sent, if that is soon. Raises HeldBack or RateLimited with the time to wait otherwise."""

    def leave(self, permit: Permit, tokens: int | None) -> None:
        """The request has ended, and has used so many tokens; None: nobody knows. Does not wait."""

    async def refuse(self, permit: Permit, asked: timedelta | None) -> timedelta:
        """The provider refused the request because there are too many, and asked for this time. Gives the time to wait."""

    def used_up(self, account: ProviderAccount) -> None:
        """The provider wants money before it answers again: somebody has to be told."""
