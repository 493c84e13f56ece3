"""Requests of an isolated turn to a model's provider: the process asks the worker, which has them counted with all others.

The process sends frames `{"admission":{…}}`, with one of these:

| the process says | the worker answers |
|---|---|
| `admit`: an account and the tokens that a request will use | `{"id","permit"}`; or `{"id","wait_s","is_ours"}`: not now |
| `refuse`: a permit, and the seconds that the provider asked for | `{"id","wait_s"}` |
| `leave`: a permit, and the tokens that were used | nothing |
| `used_up`: an account | nothing |

What a process that dies had open is given back by its worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from shared.codec import encode_json
from shared.errors import AgentFault, HeldBack, RateLimited
from shared.settings.provider_limits import ProviderLimits
from workers.agents.model.admission import Permit, ProviderAccount, ProviderAdmission
from workers.agents.remote_line import WorkerLine

SUBJECT = "admission"


class RemoteAdmission:
    """A `ProviderAdmission` in an isolated process."""

    def __init__(self, line: WorkerLine) -> None:
        self._line = line

    async def admit(self, account: ProviderAccount, tokens: int) -> Permit:
        answer = await self._line.ask(SUBJECT, {"admit": {"account": _fields(account), "tokens": tokens}})
        if "permit" in answer:
            return Permit(account, answer["permit"], tokens)
        kind = HeldBack if answer["is_ours"] else RateLimited
        raise kind(timedelta(seconds=answer["wait_s"]), provider=account.provider)

    def leave(self, permit: Permit, tokens: int | None) -> None:
        self._line.tell(SUBJECT, {"leave": {"permit": permit.id, "tokens": tokens}})

    async def refuse(self, permit: Permit, asked: timedelta | None) -> timedelta:
        asked_s = asked.total_seconds() if asked is not None else None
        about = {"account": _fields(permit.account), "permit": permit.id, "asked_s": asked_s}
        return timedelta(seconds=(await self._line.ask(SUBJECT, {"refuse": about}))["wait_s"])

    def used_up(self, account: ProviderAccount) -> None:
        self._line.tell(SUBJECT, {"used_up": {"account": _fields(account)}})


class AdmittedProcess:
    """The worker's side, for one process. `close` gives back what the process had open."""

    def __init__(self, admission: ProviderAdmission | None) -> None:
        self._admission = admission
        self._open: dict[str, Permit] = {}

    async def answered(self, asked: Mapping[str, Any]) -> bytes | None:
        """The answer to send; None where there is none. AgentFault for what no process of ours sends."""
        try:
            answer = await self._done(asked, self._admission)
            return encode_json({"id": asked["id"], **answer}) if answer is not None else None
        except (KeyError, TypeError, ValueError) as error:
            raise AgentFault(f"the isolated process sent an unknown frame: {type(error).__name__}") from None

    def close(self) -> None:
        for permit in self._open.values():
            assert self._admission is not None
            self._admission.leave(permit, None)

    async def _done(self, asked: Mapping[str, Any], admission: ProviderAdmission | None) -> dict[str, Any] | None:
        match asked:
            case {"admit": {"account": dict(fields), "tokens": int(tokens)}}:
                if admission is None:
                    return {"permit": ""}
                try:
                    permit = await admission.admit(_account(fields), tokens)
                except RateLimited as limited:
                    return {"wait_s": limited.retry_after.total_seconds(), "is_ours": isinstance(limited, HeldBack)}
                if permit.id:
                    self._open[permit.id] = permit
                return {"permit": permit.id}
            case {"refuse": {"account": dict(fields), "permit": str(id), "asked_s": asked_s}}:
                wait = timedelta(seconds=asked_s) if asked_s is not None else None
                if admission is None:
                    return {"wait_s": asked_s or 1.0}
                found = self._open.get(id) or Permit(_account(fields))
                return {"wait_s": (await admission.refuse(found, wait)).total_seconds()}
            case {"leave": {"permit": str(id), "tokens": used}}:
                if admission is not None and (left := self._open.pop(id, None)) is not None:
                    admission.leave(left, used)
                return None
            case {"used_up": {"account": dict(fields)}}:
                if admission is not None:
                    admission.used_up(_account(fields))
                return None
        raise KeyError(str(sorted(asked)))


def _fields(account: ProviderAccount) -> dict[str, Any]:
    limits = account.limits.model_dump()
    return {"id": account.id, "provider": account.provider, "model": account.model, "limits": limits}


def _account(fields: Mapping[str, Any]) -> ProviderAccount:
    return ProviderAccount(
        str(fields["id"]), str(fields["provider"]), str(fields["model"]), ProviderLimits(**fields["limits"])
    )
