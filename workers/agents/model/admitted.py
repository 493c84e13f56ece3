"""A model whose requests wait until its provider may be asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import timedelta

from shared.errors import Outage, RateLimited
from shared.settings import LlmSettings
from workers.agents.model.admission import ProviderAccount, ProviderAdmission
from workers.agents.model.contract import Model, Piece, Prompt, QuotaUsedUp, Response
from workers.agents.model.usage import estimated

OUTPUT_TOKENS = 500  # expected of an answer where no setting says how long it may get
RESERVED_TOKENS = 4096  # set aside for an answer then
OVERLOADED = 529


class AdmittedModel:
    """A `Model` that asks before it sends. Without an admission it sends at once."""

    def __init__(self, original: Model, config: LlmSettings) -> None:
        self.original = original
        self.admission: ProviderAdmission | None = None
        self.name = original.name
        self.provider = original.provider
        self.account = ProviderAccount.of(original, config)
        self._output_tokens = config.max_output_tokens or OUTPUT_TOKENS
        self._reserved_tokens = config.max_output_tokens or RESERVED_TOKENS
        self._context_tokens = config.context_tokens

    @property
    def context_window(self) -> int | None:
        return self._context_tokens or self.original.context_window

    @property
    def room(self) -> tuple[int, int] | None:
        """How many tokens it reads at once, and how many of them are kept for its answer; None where nobody says."""
        known = self.context_window
        return (known, min(self._reserved_tokens, known // 2)) if known else None

    def stream(self, prompt: Prompt) -> AsyncIterator[Piece | Response]:
        if self.admission is None:
            return self.original.stream(prompt)
        return self._admitted(prompt, self.admission)

    async def _admitted(self, prompt: Prompt, admission: ProviderAdmission) -> AsyncIterator[Piece | Response]:
        permit, used = await admission.admit(self.account, self._expected(prompt)), None
        try:
            async with aclosing(self.original.stream(prompt)) as pieces:  # type: ignore[type-var]
                async for piece in pieces:
                    if isinstance(piece, Response):
                        used = piece.usage.get("total")
                    yield piece
        except QuotaUsedUp:
            used = 0
            admission.used_up(self.account)
            raise
        except Outage as error:
            if not isinstance(error, RateLimited) and error.status != OVERLOADED:
                raise
            used = 0
            asked = error.retry_after if isinstance(error, RateLimited) and not error.is_guess else None
            wait = max(await admission.refuse(permit, asked), asked or timedelta(0))
            raise RateLimited(wait, provider=error.provider, status=error.status) from None
        finally:
            admission.leave(permit, used)

    def _expected(self, prompt: Prompt) -> int:
        """How many tokens a request will use, counted only where somebody wants to know."""
        if self.account.limits.tokens_per_minute is None:
            return 0
        return int(estimated(self.name, prompt)["input"]) + self._output_tokens
