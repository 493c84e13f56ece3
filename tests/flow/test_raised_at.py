"""Whoever writes an agent reads in the log where it raised, and nobody's words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shared.codec import decode_source
from tests.support.place import Place
from workers.raised_at import raised_at

AGENT = """
import json

def price(text):
    return json.loads(text)["price"]

async def answer(text):
    return price(text)
"""


def test_a_failed_turn_is_logged_with_the_line_of_the_agent_that_raised(tmp_path: Path) -> None:
    place = Place(tmp_path, agent="mine:answer", max_attempts="1")
    place.write("mine.py", AGENT)
    try:
        place.up()
        place.run("chat", "-m", "a secret word")
        place.until(lambda: "turn failed" in place.said("up", "err"))
        lines = [json.loads(line) for line in place.said("up", "err").splitlines()]
        [failed] = [line for line in lines if line["event"] == "turn failed"]
        assert failed["at"] == f"{place.directory / 'mine.py'}:5 in price"  # not the line in json that it went on to
        assert "secret" not in json.dumps(failed)
    finally:
        place.close()


def test_an_error_that_passed_no_file_of_the_operators_has_no_place() -> None:
    with pytest.raises(Exception) as raised:
        decode_source(None)
    error, here = raised.value, raised.value.__traceback__
    assert here is not None and (raised_at(error) or "").startswith(f"{__file__}:")
    assert raised_at(error.with_traceback(here.tb_next)) is None
