"""What /openapi.json says of a message is what the reader of messages takes, to the last character."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest

from producers.api.openapi import FOLLOW, GET_MESSAGE, POST_MESSAGE
from producers.message_body import event_id_of, normalise
from producers.server.openapi import OPERATIONS, describe
from producers.webhook.openapi import RECEIVE
from shared.errors import Malformed

ROUTES = {
    **OPERATIONS,
    ("/v1/messages", "POST"): POST_MESSAGE,
    ("/v1/messages/{id}", "GET"): GET_MESSAGE,
    ("/v1/sessions/{key:path}/events", "GET"): FOLLOW,
    ("/webhooks/generic", "POST"): RECEIVE,
}
DOCUMENT = describe(ROUTES)
BASE: dict[str, Any] = {"chat": {"id": "c"}, "user": {"id": "u"}, "text": "hi"}
PICTURE = {"url": "https://a/b.png"}


def described(body: Any) -> bool:
    schema = {**DOCUMENT["components"]["schemas"]["Message"], "components": DOCUMENT["components"]}
    return bool(jsonschema_rs.is_valid(schema, body))


def taken(body: Any) -> bool:
    try:
        normalise(body, "webhook", event_id_of(body) or "e1", 1)
    except Malformed:
        return False
    return True


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"text": "x" * 200_000},
        {"text": None, "media": [PICTURE]},
        {"text": "", "media": [PICTURE] * 20},
        {"id": "i" * 256},
        {"id": 7, "thread": None, "reply_to": ""},
        {"chat": {"id": "c" * 256, "type": "group", "name": "n" * 256, "topic": None}},
        {"chat": {"id": 7, "type": None}},
        {"user": {"id": 7, "name": "n" * 256}},
        {"mentioned": False, "sent_at": None},
        {"mentioned": None, "sent_at": "2026-11-17T12:00:00+00:00"},
        {"media": [{**PICTURE, "type": "n" * 256, "name": None}]},
        {"media": [{"url": "http://" + "x" * 4089}]},
    ],
)
def test_what_is_described_is_taken(changes: dict[str, Any]) -> None:
    body = {**BASE, **changes}
    assert described(body) and taken(body)


@pytest.mark.parametrize(
    "changes",
    [
        {"text": "x" * 200_001},
        {"text": ""},
        {"text": None},
        {"text": None, "media": []},
        {"text": 7},
        {"media": [PICTURE] * 21},
        {"media": ["words"]},
        {"media": [{}]},
        {"media": [{"url": "ftp://a"}]},
        {"media": [{"url": "http://" + "x" * 4090}]},
        {"media": [{**PICTURE, "type": "n" * 257}]},
        {"media": [{**PICTURE, "size": 1}]},
        {"id": "i" * 257},
        {"id": "a\0b"},
        {"id": True},
        {"thread": "i" * 257},
        {"reply_to": {}},
        {"chat": {}},
        {"chat": {"id": ""}},
        {"chat": {"id": "c", "type": "cave"}},
        {"chat": {"id": "c", "name": "n" * 257}},
        {"chat": {"id": "c", "more": 1}},
        {"chat": None},
        {"user": {"id": None}},
        {"user": {"id": "u", "name": 7}},
        {"mentioned": 1},
        {"sent_at": 7},
        {"more": 1},
    ],
)
def test_what_is_not_described_is_refused(changes: dict[str, Any]) -> None:
    body = {**BASE, **changes}
    assert not described(body) and not taken(body)


def test_a_message_needs_a_chat_and_a_user() -> None:
    for name in ("chat", "user"):
        body = {field: value for field, value in BASE.items() if field != name}
        assert not described(body) and not taken(body)


def test_the_document_is_one_of_openapi_with_a_body_where_one_is_needed() -> None:
    assert DOCUMENT["openapi"] == "3.1.0" and [*DOCUMENT["paths"]] == sorted(DOCUMENT["paths"])
    assert "/v1/sessions/{key}/events" in DOCUMENT["paths"]
    for operation in (POST_MESSAGE, RECEIVE):
        assert operation["requestBody"]["required"] is True
    for operation in (POST_MESSAGE, GET_MESSAGE, FOLLOW):
        assert operation["security"] == [{"key": []}]
    assert all(parameter["required"] for parameter in (*GET_MESSAGE["parameters"], *RECEIVE["parameters"]))
    follow = {parameter["name"]: parameter.get("required", False) for parameter in FOLLOW["parameters"]}
    assert follow == {"key": True, "Last-Event-ID": False}


def test_answers_are_described_without_room_for_anything_else() -> None:
    def schema_of(operation: dict[str, Any], status: str) -> dict[str, Any]:
        found: dict[str, Any] = operation["responses"][status]["content"]["application/json"]["schema"]
        return found

    accepted = schema_of(POST_MESSAGE, "202")
    assert accepted["additionalProperties"] is False
    assert accepted["required"] == ["id", "state", "session_key"] == schema_of(GET_MESSAGE, "200")["required"]
    assert schema_of(RECEIVE, "200")["required"] == ["status"]
    assert DOCUMENT["components"]["schemas"]["Error"]["required"] == ["error"]
    assert {*POST_MESSAGE["responses"]} == {"200", "202", "400", "401", "403", "408", "413", "422", "429", "503"}
    assert schema_of(POST_MESSAGE, "401") == {"$ref": "#/components/schemas/Error"}
