"""What each platform really sends, kept in tests/payloads/<platform>/, becomes what lies beside it.

`<name>.json` is the payload. Beside it lies `<name>.inbound.json`, or `.ignored`, `.migrated` or `.undelivered`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from producers.heard import Heard, Ignored, Moved, Undelivered
from shared.mail import decode_inbound
from shared.platforms import PLATFORMS
from tests.contract.found import MODULES, require_case

FOLDER = Path(__file__).parents[1] / "payloads"
NAMES = [
    (platform, path.stem)
    for platform, module in MODULES.items()
    if module is not None and hasattr(module, "heard")
    for path in sorted((FOLDER / platform).glob("*.json"))
    if "." not in path.stem
]


def expected(platform: str, name: str) -> Heard:
    [path] = (FOLDER / platform).glob(f"{name}.*.json")
    fields: dict[str, Any] = orjson.loads(path.read_bytes())
    if path.name == f"{name}.ignored.json":
        return Ignored(**fields)
    if path.name == f"{name}.migrated.json":
        return Moved(**fields)
    if path.name == f"{name}.undelivered.json":
        return Undelivered(**fields)
    assert path.name == f"{name}.inbound.json"
    return decode_inbound(orjson.dumps({"v": 1, "inbound": fields}))


@pytest.mark.parametrize(("platform", "name"), NAMES)
def test_a_payload_becomes_what_lies_beside_it(platform: str, name: str) -> None:
    payload = orjson.loads((FOLDER / platform / f"{name}.json").read_bytes())
    assert require_case(platform).heard(payload) == expected(platform, name)


@pytest.mark.parametrize("platform", [name for name, facts in PLATFORMS.items() if facts.receives or facts.listens])
def test_every_platform_that_brings_messages_keeps_some_of_its_payloads(platform: str) -> None:
    """But for those whose payloads are another's: they say whose."""
    module = require_case(platform)
    if (shared := getattr(module, "PAYLOADS_OF", None)) is not None:
        platform = shared
    assert any(found == platform for found, _ in NAMES)
