"""The API's contract: a bearer key on the way in, and a session to follow instead of a sender."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pydantic import SecretStr

from shared.platforms.api import ApiSettings
from tests.contract.case import NotHere, Post, Webhook

PROGRAM = NotHere("a program of the operator's posts messages of people, and nothing else")


class ApiCase(Webhook):
    platform = "api"
    secrets = ("test-key", "other-key")
    proofs = ("authorization",)
    oldest_seconds = NotHere("a bearer key signs nothing")
    taken = (202, 200)  # 200: it was there before
    recorded = 422
    own = PROGRAM
    others = PROGRAM
    shapeless = ({}, {"chat": 1}, {"chat": {"id": "c1"}, "user": {"id": "u1"}})

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[ApiCase]:
        yield cls()

    def blocks(self, *secrets: str) -> dict[str, Any]:
        return {"api": ApiSettings(keys=tuple(SecretStr(secret) for secret in secrets))}

    def said(self, text: str, *, id: int, chat: int = 1) -> Any:
        return a_message(text, id, chat)

    def said_by_stranger(self, text: str, *, id: int) -> NotHere:
        return NotHere("the key is the permission, for any user")

    def post(self, body: bytes, secret: str, *, ahead: int = 0) -> Post:
        return Post("/v1/messages", body, (("authorization", f"Bearer {secret}"),))


def a_message(text: str, id: int, chat: int) -> dict[str, Any]:
    """All fields of the body that programs write."""
    return {
        "id": f"evt_{id}",
        "chat": {"id": f"c{chat}", "type": "dm", "name": "Ann", "topic": None},
        "user": {"id": "u1", "name": "Ann"},
        "thread": None,
        "text": text,
        "media": [],
        "reply_to": None,
        "mentioned": True,
        "sent_at": "2026-11-16T10:00:00Z",
    }


PAYLOADS_OF = "webhook"
RECEIVING = (ApiCase,)
SENDING = NotHere("callers follow their session")
