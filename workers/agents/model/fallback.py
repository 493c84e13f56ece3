"""Which model a turn asks: the first in line, and the next one where that cannot answer anybody.

| the model | the turn |
|---|---|
| is away (5xx, no connection, a cut one), has used up its quota, refuses its key, or is not there | asks the next one at once. For 30 s, turns of this worker begin with the next one |
| wants a pause (429) of 2 s or less | waits, once in each request |
| wants a longer pause, is silent, or did not finish its answer | asks the next one |
| is held back by LLM__LIMITS | waits, as without fallbacks: its provider is well |
| refuses what it was asked | ends: nobody else is asked the same |

A turn stays with the model that it turned to. Where none can answer, the turn ends as the most hopeful of them says: it waits for
one that is away, and is set aside where all want money.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta

from shared import log
from shared.errors import HeldBack, Outage, Permanent, PipelineError, RateLimited, Transient, Unavailable
from workers.agents.model.admitted import AdmittedModel
from workers.agents.model.contract import AccessRefused, QuotaUsedUp, TooLong

REST_SECONDS = 30.0  # that a model is left alone which answers nobody, while another can
SHORT_PAUSE = timedelta(seconds=2)


class RestingModels:
    """The models that answer nobody for now, as this process found out."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}  # by account, on the monotonic clock

    def add(self, model: AdmittedModel) -> None:
        self._until[model.account.id] = time.monotonic() + REST_SECONDS

    def last(self, models: Sequence[AdmittedModel]) -> list[AdmittedModel]:
        """The models in their order, but those that rest behind the others."""
        if not self._until:
            return list(models)
        now = time.monotonic()
        return sorted(models, key=lambda model: self._until.get(model.account.id, 0.0) > now)


class ModelLine:
    """The models that one turn may ask, in order. Used once."""

    def __init__(self, models: Sequence[AdmittedModel], resting: RestingModels, session_key: str) -> None:
        self._first = models[0]
        self._resting = resting
        self._session_key = session_key
        self.now, *self._left = resting.last(models)
        self._failures: list[PipelineError] = []
        self._has_waited = False

    @property
    def instead_of(self) -> str:
        """The model that was to answer, where another does; else empty."""
        return self._first.name if self.now is not self._first else ""

    async def after(self, error: PipelineError) -> None:
        """What follows a request that failed: `now` is to be asked next, which may be the same model once more. Raises the
        error that the turn ends with, where nobody is left to be asked."""
        if not (self._left or self._failures) or not self._may_another_answer(error):
            raise error
        if isinstance(error, RateLimited) and error.retry_after <= SHORT_PAUSE and not self._has_waited:
            self._has_waited = True
            await asyncio.sleep(error.retry_after.total_seconds())
            return
        self._failures.append(error)
        if _answers_nobody(error):
            self._resting.add(self.now)
        if not self._left:
            raise min(self._failures, key=_hopelessness)
        failed, self.now, self._has_waited = self.now, self._left.pop(0), False
        log.get().warning(
            "model cannot answer, another is asked",
            key=self._session_key,
            provider=failed.provider,
            status=error.status if isinstance(error, Outage) else None,
            error=str(error),
            model=failed.name,
            next_model=self.now.name,
        )

    def _may_another_answer(self, error: PipelineError) -> bool:
        if isinstance(error, HeldBack | Unavailable):
            return False
        if isinstance(error, TooLong):  # those before it may read more at once
            return self.now is not self._first
        return isinstance(error, Transient | QuotaUsedUp | AccessRefused)


def _answers_nobody(error: PipelineError) -> bool:
    """Whether the next turn would be told the same. How long a pause lasts, the admission knows."""
    away = isinstance(error, Outage) and not isinstance(error, RateLimited)
    return away or isinstance(error, QuotaUsedUp | AccessRefused)


def _hopelessness(error: PipelineError) -> tuple[int, timedelta]:
    if isinstance(error, Outage):
        return 0, error.retry_after
    return (2 if isinstance(error, Permanent) else 1), timedelta(0)
