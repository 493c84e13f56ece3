"""Sending through the HTTP API: POST /v1/deliveries says something in chats that API__DELIVER_TO lists."""

from __future__ import annotations

from collections.abc import Set
from typing import Any
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from producers.api.keys import ApiKeys
from producers.heard import parse_json
from producers.quotas import Quotas
from producers.server.body import read_body
from shared.announcing import Announcement, TargetOutcome, announce, check
from shared.errors import Malformed, TooMany
from shared.pipeline import Pipeline
from shared.platforms.api import NAME, ApiSettings
from shared.targets import Target, TargetKind, parse_targets

EVERY_CHAT = "*"
_FIELDS = {"id", "to", "text"}


class ApiDeliveries:
    """The route. A request may be repeated with its `id`: nothing is sent twice."""

    def __init__(self, pipe: Pipeline, keys: ApiKeys) -> None:
        self._pipe = pipe
        self._keys = keys
        self._quotas = Quotas(pipe, NAME)
        self._allowed = frozenset(pipe.settings.block(ApiSettings).deliver_to)

    async def deliver(self, request: Request) -> Response:
        """202 if a target took it, 200 if all had it before, 422 if none could be told; each target says why. Each target
        counts as one message of its sender: beyond a quota, TooMany, and nothing is sent."""
        caller = self._keys.check(request, "send")
        fields = parse_json(await read_body(request, self._pipe.settings))
        if unknown := sorted(fields.keys() - _FIELDS):
            raise Malformed(f"unknown field: {unknown[0][:40]!a}")
        text, key = _text(fields, "text"), fields.get("id")
        said = Announcement(text, f"api {caller.sender}", f"evt_{uuid4().hex}" if key is None else _text(fields, "id"))
        check(said)
        targets = parse_targets(_targets(fields.get("to")))
        told = {target: _not_allowed(target) for target in targets if not may_deliver(target, self._allowed)}
        allowed = [target for target in targets if target not in told]
        for target in allowed:
            over = await self._quotas.check_send(f"{said.sender} {said.key} {target}", caller.sender)
            if over is not None:
                raise TooMany(over.quota, over.retry_after)
        told |= dict(zip(allowed, await announce(self._pipe, said, allowed), strict=True))
        outcomes = {each.outcome for each in told.values()}
        status = 422 if outcomes == {"refused"} else 202 if outcomes - {"known", "refused"} else 200
        return JSONResponse({"deliveries": [_shown(told[target]) for target in targets]}, status)


def may_deliver(target: Target, allowed: Set[str]) -> bool:
    """Whether API__DELIVER_TO lists a target: by itself, by its platform with all chats, or all chats everywhere. A file is
    written only where `local` is listed."""
    if target.kind is TargetKind.ORIGIN:  # no chat asks through the API
        return False
    if target.kind is TargetKind.FILE:
        return str(target) in allowed
    return not allowed.isdisjoint({str(target), f"{target.platform}:{EVERY_CHAT}", EVERY_CHAT})


def _not_allowed(target: Target) -> TargetOutcome:
    return TargetOutcome(str(target), "refused", reason="not among the targets that this API may send to")


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise Malformed(f"{name} is needed, as text")
    return value


def _targets(to: Any) -> list[str]:
    if isinstance(to, str):
        return [to]
    if not isinstance(to, list) or not all(isinstance(one, str) for one in to):
        raise Malformed("to is a target, or a list of targets")
    return to


def _shown(told: TargetOutcome) -> dict[str, Any]:
    shown = {"target": told.target, "outcome": told.outcome, "id": told.id, "state": told.state, "reason": told.reason}
    return {name: value for name, value in shown.items() if value is not None}
