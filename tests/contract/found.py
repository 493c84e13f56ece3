"""The cases of all platforms, found by their names. A platform without one fails the suites, and the message says what to do."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import pytest

from shared.platforms import PLATFORMS
from tests.contract.case import Incoming, NotHere, Outgoing


def module_of(platform: str) -> ModuleType | None:
    name = f"tests.contract.{platform}"
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return None


MODULES = {platform: module_of(platform) for platform in PLATFORMS}
WAYS_IN: list[type[Incoming]] = [way for module in MODULES.values() if module is not None for way in module.RECEIVING]
WAYS_OUT: dict[str, type[Outgoing] | NotHere] = {
    platform: module.SENDING for platform, module in MODULES.items() if module is not None
}


def require_case(platform: str) -> ModuleType:
    module = MODULES[platform]
    if module is None:
        pytest.fail(
            f"{platform} is in the list of platforms and has no contract case: write tests/contract/{platform}.py with "
            "RECEIVING and SENDING, see tests/contract/case.py"
        )
    return module
