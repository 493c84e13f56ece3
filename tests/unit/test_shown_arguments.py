"""What a person reads before they approve a call: exactly what would run."""

from __future__ import annotations

import orjson
import pytest

from workers.agents.tools.shown import FENCE, code_block


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ('{"cmd":"rm *.log keep*"}', '{"cmd":"rm *.log keep*"}'),
        ('{"to":"Jürgen 你好 🙂"}', '{"to":"Jürgen 你好 🙂"}'),
        ('{"to":"\u202egro.live@bob"}', '{"to":"\\u202egro.live@bob"}'),
        ('{"to":"a\u200bb\u00adc\ufeffd"}', '{"to":"a\\u200bb\\u00adc\\ufeffd"}'),
        ('{"to":"a\u3164b\ufe0fc\u00a0d\u2028e"}', '{"to":"a\\u3164b\\ufe0fc\\u00a0d\\u2028e"}'),
        ('{"tag":"\U000e0041"}', '{"tag":"\\udb40\\udc41"}'),
        ('{"md":"a`b``c```\\n```d"}', '{"md":"a`b\\u0060\\u0060c\\u0060\\u0060\\u0060\\n\\u0060\\u0060\\u0060d"}'),
    ],
)
def test_what_cannot_be_seen_is_written_as_an_escape_and_nothing_leaves_the_code_block(
    written: str, shown: str
) -> None:
    block = code_block(written)
    assert block == f"{FENCE}\n{shown}\n{FENCE}" and block.count(FENCE) == 2
    assert orjson.loads(shown) == orjson.loads(written)  # it says the same


def test_controls_between_the_values_are_seen_too() -> None:
    assert code_block('{"a":\r1,\t"b":\n2}') == f'{FENCE}\n{{"a":\\u000d1,\\u0009"b":\n2}}\n{FENCE}'
