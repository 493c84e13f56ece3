"""Log lines: one line each whatever strangers wrote, nothing that a terminal obeys, and no secret of the settings."""

from __future__ import annotations

import io
import logging
import re
import sys
import unicodedata
from typing import Any, get_args

import orjson
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from shared import log
from shared.settings import Settings

SECRET = 'pass"word\\with/odd:chars'
HOSTILE = 'Mallory]\r\n{"event":"forged"}\x1b[2J\x9b2J\x85\u2028\u202e\u200b\ufeff\x00'


@pytest.fixture
def form() -> str:
    return "json"


@pytest.fixture
def stderr(monkeypatch: pytest.MonkeyPatch, form: str) -> io.StringIO:
    heard = io.StringIO()
    monkeypatch.setattr(sys, "stderr", heard)
    monkeypatch.setenv("NO_COLOR", "1")
    log.setup("debug", "test", ["short", SECRET, "plain-secret-value"], form=form)
    return heard


def lines(heard: io.StringIO) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in heard.getvalue().split("\n") if line]


def test_hostile_text_stays_inside_its_line(stderr: io.StringIO) -> None:
    structlog.get_logger().warning("refused", name=HOSTILE, path=HOSTILE + "\ud800")
    logging.getLogger("library").warning("said %s", HOSTILE)
    text = stderr.getvalue()
    assert text.count("\n") == 2 and len(text.splitlines()) == 2
    assert all(unicodedata.category(char) not in ("Cc", "Cf", "Zl", "Zp", "Cs") for char in text.replace("\n", ""))
    assert [line["event"][:4] for line in lines(stderr)] == ["refu", "said"]


@pytest.mark.parametrize("form", ["text"])
def test_hostile_text_stays_inside_its_line_for_a_person_too(stderr: io.StringIO) -> None:
    structlog.get_logger().warning(HOSTILE, name=HOSTILE, path=HOSTILE + "\ud800", **{HOSTILE: 1})
    logging.getLogger("library").warning("said %s", HOSTILE)
    try:
        raise RuntimeError(HOSTILE)
    except RuntimeError:
        structlog.get_logger().exception("raised")
    first, second, third, *traceback = stderr.getvalue().splitlines()
    assert " warning test " in first and " warning test " in second and " error   test " in third
    assert traceback and all(line.startswith("    ") for line in traceback)
    text = stderr.getvalue().replace("\n", "")
    assert all(unicodedata.category(char) not in ("Cc", "Cf", "Zl", "Zp", "Cs") for char in text)


@pytest.mark.parametrize("form", ["text"])
@pytest.mark.parametrize("spelled", [SECRET, "plain-secret-value", "pass%22word%5Cwith%2Fodd%3Achars"])
def test_a_secret_is_cut_out_of_lines_for_a_person_too(stderr: io.StringIO, spelled: str) -> None:
    structlog.get_logger().error(f"it said {spelled}", error=f"with {spelled}!", alone=spelled, **{spelled: 1})
    try:
        raise RuntimeError(spelled)
    except RuntimeError:
        structlog.get_logger().exception("raised")
    text = stderr.getvalue()
    assert text.count("[hidden]") >= 5
    for form in (spelled, orjson.dumps(spelled).decode()[1:-1]):
        assert form not in text


@pytest.mark.parametrize("form", ["text"])
def test_a_line_for_a_person_has_time_level_process_and_words(stderr: io.StringIO) -> None:
    structlog.get_logger().info("taken in", key="agent:main:api:dm:c1", note="two words", count=3)
    assert re.fullmatch(
        r'\d\d:\d\d:\d\d info    test      taken in key=agent:main:api:dm:c1 note="two words" count=3\n',
        stderr.getvalue(),
    )


@given(st.text())
def test_what_was_logged_is_what_is_read_back(text: str) -> None:
    line = log._one_line(orjson.dumps({"text": text}).decode())
    assert orjson.loads(line) == {"text": text} and len(line.splitlines()) == 1


@pytest.mark.parametrize("spelled", [SECRET, "plain-secret-value", "pass%22word%5Cwith%2Fodd%3Achars"])
def test_a_secret_of_the_settings_is_cut_out_of_every_line(stderr: io.StringIO, spelled: str) -> None:
    logger = structlog.get_logger()
    logger.error("it said", error=f"could not connect with {spelled}!", **{spelled: 1})
    logging.getLogger("library").warning("tried %s", spelled)
    try:
        raise RuntimeError(spelled)
    except RuntimeError:
        logger.exception("raised")
    text = stderr.getvalue()
    assert len(lines(stderr)) == 3 and text.count("[hidden]") >= 4
    for form in (spelled, orjson.dumps(spelled).decode()[1:-1]):
        assert form not in text


def test_what_looks_like_a_secret_is_cut_out_too(stderr: io.StringIO) -> None:
    structlog.get_logger().error("x", a="redis://u:p4ss@host:1/0", b="whsec_abcDEF123+/=", c="https://example.org/path")
    [line] = lines(stderr)
    assert (line["a"], line["b"]) == ("redis://[hidden]@host:1/0", "[hidden]")
    assert line["c"] == "https://example.org/path"


def test_every_secret_that_settings_can_hold_is_known_to_the_log() -> None:
    """A new platform's token is hidden because it is a SecretStr, not because somebody remembered it here."""
    known: dict[str, Any] = {}
    expected = []

    def fill(model: type[BaseModel], where: str) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, field in model.model_fields.items():
            kinds = [field.annotation, *get_args(field.annotation)]
            kinds += [inner for kind in kinds for inner in get_args(kind)]
            if SecretStr in kinds:
                secret = f"canary-{where}{name}"
                expected.append(secret)
                listed = any(getattr(kind, "__origin__", None) is tuple for kind in kinds)
                values[name] = (SecretStr(secret),) if listed else SecretStr(secret)
            elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
                values[name] = field.annotation.model_construct(**fill(field.annotation, f"{where}{name}-"))
        return values

    known = fill(Settings, "")
    settings = Settings.model_construct(**known)
    hidden = settings.secret_values()
    assert len(expected) >= 4 and set(expected) <= set(hidden)


def test_after_a_reset_nothing_is_written_where_an_earlier_setup_wrote(stderr: io.StringIO) -> None:
    log.get().warning("heard")
    log.reset()
    stderr.close()  # a logger that was kept would fail here
    log.get().warning("not heard there")
