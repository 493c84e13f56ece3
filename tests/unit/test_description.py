"""The limits and fields that /openapi.json describes are the ones that are kept."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from producers.api.openapi import (
    COMPLETE,
    FOLLOW,
    GET_MESSAGE,
    GET_MODEL,
    GET_SCALE,
    LIST_MODELS,
    POST_DELIVERY,
    POST_MESSAGE,
    PREFLIGHT,
)
from producers.message_body import event_id_of, normalise
from producers.server.openapi import OPERATIONS, describe
from producers.webhook.openapi import RECEIVE
from shared.errors import Malformed
from shared.messages import Inbound

MESSAGE: dict[str, Any] = describe({})["components"]["schemas"]["Message"]
FULL: dict[str, Any] = {
    "id": "evt_1",
    "chat": {"id": "c1", "type": "group", "name": "Team", "topic": "Plans"},
    "user": {"id": "u1", "name": "Ann"},
    "thread": "t1",
    "text": "hello",
    "media": [{"url": "https://example.org/a.png", "type": "image/png", "name": "a.png"}],
    "reply_to": "evt_0",
    "mentioned": True,
    "sent_at": "2026-11-16T10:00:00Z",
}
Path = tuple[str | int, ...]


def understood(body: dict[str, Any]) -> Inbound:
    return normalise(body, "webhook", event_id_of(body) or "evt_1", 1)


def leaves(schema: dict[str, Any], path: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    for name, field in schema.get("properties", {}).items():
        if "properties" in field:
            yield from leaves(field, (*path, name))
        elif "items" in field:
            yield from leaves(field["items"], (*path, name, 0))
        else:
            yield (*path, name), field


def objects(schema: dict[str, Any], path: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    yield path, schema
    for name, field in schema["properties"].items():
        if "properties" in field:
            yield from objects(field, (*path, name))
        elif "items" in field:
            yield from objects(field["items"], (*path, name, 0))


def at(body: Any, path: Path) -> Any:
    for step in path:
        body = body[step]
    return body


def with_(path: Path, value: Any) -> dict[str, Any]:
    body = deepcopy(FULL)
    at(body, path[:-1])[path[-1]] = value
    return body


LONGEST = [(path, field["maxLength"]) for path, field in leaves(MESSAGE) if "maxLength" in field]


@pytest.mark.parametrize(("path", "limit"), LONGEST, ids=[".".join(map(str, path)) for path, _ in LONGEST])
def test_text_is_taken_up_to_the_limit_that_is_described_and_no_further(path: Path, limit: int) -> None:
    start = "https://" if path[-1] == "url" else ""
    understood(with_(path, start + "x" * (limit - len(start))))
    with pytest.raises(Malformed):
        understood(with_(path, start + "x" * (limit + 1 - len(start))))


def test_every_text_field_has_a_limit() -> None:
    assert {path for path, _ in LONGEST} == {
        path for path, field in leaves(MESSAGE) if "string" in field.get("type", ()) and "format" not in field
    }


def test_the_limits_are_those_that_senders_were_told_of() -> None:
    limits = {path: limit for path, limit in LONGEST if limit != 256}
    assert limits == {("text",): 200_000, ("media", 0, "url"): 4096}
    assert MESSAGE["properties"]["media"]["maxItems"] == 20


def test_media_is_taken_up_to_the_number_that_is_described() -> None:
    most, [one] = MESSAGE["properties"]["media"]["maxItems"], FULL["media"]
    assert len(understood({**FULL, "media": [one] * most}).media) == most
    with pytest.raises(Malformed):
        understood({**FULL, "media": [one] * (most + 1)})


@pytest.mark.parametrize(("path", "schema"), list(objects(MESSAGE)), ids=lambda value: str(value)[:20])
def test_what_is_described_as_required_is_and_nothing_else_is_taken(path: Path, schema: dict[str, Any]) -> None:
    for name in schema["properties"]:
        body = deepcopy(FULL)
        del at(body, path)[name]
        if name in schema["required"]:
            with pytest.raises(Malformed):
                understood(body)
        else:
            understood(body)
    assert schema["additionalProperties"] is False
    with pytest.raises(Malformed):
        understood(with_((*path, "surprise"), 1))


@pytest.mark.parametrize("path", [path for path, field in leaves(MESSAGE) if "null" in field.get("type", ())])
def test_null_is_as_good_as_nothing_where_it_is_described_so(path: Path) -> None:
    understood(with_(path, None))


def test_words_or_a_file_are_needed() -> None:
    assert understood({**FULL, "text": None}).text == ""
    assert understood({**FULL, "media": None}).media == ()
    for nothing in ({"text": None, "media": None}, {"text": "", "media": []}):
        with pytest.raises(Malformed):
            understood({**FULL, **nothing})


def test_every_kind_of_chat_that_is_described_is_taken() -> None:
    kinds = MESSAGE["properties"]["chat"]["properties"]["type"]["enum"]
    found = [understood(with_(("chat", "type"), kind)).source.chat_type for kind in kinds]
    assert found == [kind or "dm" for kind in kinds] and len(kinds) > 3
    with pytest.raises(Malformed):
        understood(with_(("chat", "type"), "crowd"))


def test_every_field_is_kept() -> None:
    inbound = understood(FULL)
    source = inbound.source
    assert (source.chat, source.chat_type, source.chat_name, source.topic) == ("c1", "group", "Team", "Plans")
    assert (source.user, source.user_name, source.thread) == ("u1", "Ann", "t1")
    assert (inbound.text, inbound.reply_to, inbound.mentioned) == ("hello", "evt_0", True)
    assert (inbound.sent_at, inbound.received_at) == (1_794_823_200_000, 1)
    [media] = inbound.media
    assert (media.url, media.type, media.name) == ("https://example.org/a.png", "image/png", "a.png")
    assert understood({**FULL, "mentioned": False}).mentioned is False
    assert understood({**FULL, "mentioned": None}).mentioned is True


@pytest.mark.parametrize("sent_at", [7, "yesterday", "2026-13-01", []])
def test_a_time_that_is_none_is_refused(sent_at: Any) -> None:
    with pytest.raises(Malformed):
        understood({**FULL, "sent_at": sent_at})


@pytest.mark.parametrize("sent_at", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59.999999-23:59"])
def test_the_first_and_the_last_time_of_the_calendar_are_times(sent_at: str) -> None:
    assert understood({**FULL, "sent_at": sent_at}).sent_at is not None


REFUSALS = {"400", "401", "408", "413", "429", "503"}


@pytest.mark.parametrize(
    ("operation", "statuses"),
    [
        (POST_MESSAGE, {"200", "202", "403", "422", *REFUSALS}),
        (RECEIVE, {"200", *REFUSALS}),  # what is signed and cannot be understood is recorded
        (GET_MESSAGE, {"200", "401", "403", "404", "503"}),
        (FOLLOW, {"200", "401", "403", "404", "422"}),
        (GET_SCALE, {"200", "401", "403", "503"}),
        (PREFLIGHT, {"204"}),
        (OPERATIONS["/readyz", "GET"], {"200", "503"}),
        (OPERATIONS["/healthz", "GET"], {"200"}),
        (OPERATIONS["/metrics", "GET"], {"200"}),
    ],
    ids=lambda value: str(value.get("summary"))[:20] if isinstance(value, dict) else "",
)
def test_every_answer_that_a_sender_can_meet_is_described(operation: dict[str, Any], statuses: set[str]) -> None:
    assert set(operation["responses"]) == statuses
    for status, described in operation["responses"].items():
        assert described["description"]
        if int(status) >= 400 and operation is not OPERATIONS["/readyz", "GET"]:
            assert described["content"] == {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}


@pytest.mark.parametrize(
    ("operation", "statuses"),
    [
        (COMPLETE, {"200", "400", "401", "403", "404", "408", "413", "429", "500", "503", "504"}),
        (LIST_MODELS, {"200", "401", "403"}),
        (GET_MODEL, {"200", "401", "403", "404"}),
    ],
    ids=["complete", "list models", "get model"],
)
def test_refusals_in_openais_form_are_described_as_such(operation: dict[str, Any], statuses: set[str]) -> None:
    assert set(operation["responses"]) == statuses
    for status, described in operation["responses"].items():
        if int(status) >= 400:
            error = described["content"]["application/json"]["schema"]["properties"]["error"]
            assert set(error["required"]) == {"message", "type", "param", "code"}


def test_a_delivery_is_described_with_its_targets_and_what_became_of_each() -> None:
    assert set(POST_DELIVERY["responses"]) == {"200", "202", "422", *REFUSALS}
    body = POST_DELIVERY["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["required"]) == {"to", "text"} and set(body["properties"]) == {"id", "to", "text"}
    one, several = body["properties"]["to"]["oneOf"]
    assert (one, several["items"], several["minItems"]) == ({"type": "string"}, {"type": "string"}, 1)
    for status in ("200", "202"):
        told = POST_DELIVERY["responses"][status]["content"]["application/json"]["schema"]["properties"]["deliveries"]
        assert set(told["items"]["required"]) == {"target", "outcome"}


EVERY = [POST_MESSAGE, POST_DELIVERY, GET_MESSAGE, FOLLOW, COMPLETE, GET_SCALE, LIST_MODELS, GET_MODEL]


@pytest.mark.parametrize("operation", EVERY, ids=lambda value: str(value["summary"])[:20])
def test_the_api_is_described_as_needing_a_key(operation: dict[str, Any]) -> None:
    document = describe({("/v1/x", "POST"): operation})
    [[scheme]] = [list(entry) for entry in operation["security"]]
    assert document["components"]["securitySchemes"][scheme] == {"type": "http", "scheme": "bearer"}


@pytest.mark.parametrize("operation", [POST_MESSAGE, RECEIVE])
def test_a_message_is_described_as_the_body_that_is_needed(operation: dict[str, Any]) -> None:
    body = operation["requestBody"]
    assert body == {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Message"}}},
    }


@pytest.mark.parametrize("operation", EVERY, ids=lambda value: str(value["summary"])[:20])
def test_what_is_posted_needs_a_body_and_what_is_asked_for_has_none(operation: dict[str, Any]) -> None:
    is_posted = operation in (POST_MESSAGE, POST_DELIVERY, COMPLETE)
    assert operation.get("requestBody", {}).get("required", False) == is_posted


def test_the_parameters_of_a_path_and_the_headers_of_a_signature_are_needed() -> None:
    assert GET_MODEL["parameters"] == GET_MESSAGE["parameters"]
    parameters = [*GET_MESSAGE["parameters"], *FOLLOW["parameters"], *RECEIVE["parameters"]]
    needed = {parameter["name"]: parameter.get("required", False) for parameter in parameters}
    headers = {"webhook-id": True, "webhook-timestamp": True, "webhook-signature": True}
    assert needed == {"id": True, "key": True, "Last-Event-ID": False, **headers}
    assert {parameter["name"]: parameter["in"] for parameter in parameters if parameter["in"] == "path"} == {
        "id": "path",
        "key": "path",
    }
