"""What an autoscaler is told: work for workers, and nothing that no worker could help."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from pydantic import SecretStr

from shared.pipeline import open_pipeline
from shared.platforms.api import ApiSettings, NamedKey
from shared.settings import Settings
from tests.support.door import Door, a_body, open_door
from tests.support.pipe import Rig

SCALER, SHOP = "scaler-key-0123456789", "shop-key-0123456789"
KEYS = ApiSettings(
    keys=(SecretStr("test-key"),),
    named_keys={
        "scaler": NamedKey(secrets=(SecretStr(SCALER),), scopes=("scale",)),
        "shop": NamedKey(secrets=(SecretStr(SHOP),)),
    },
)


async def asked(door: Door, key: str) -> tuple[int, dict[str, float]]:
    answer = await door.request("GET", "/v1/scale", {"authorization": f"Bearer {key}"} if key else {})
    return answer.status_code, answer.json()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_scaler_is_told_of_turns_that_run_and_keys_that_wait_for_a_worker(
    make_settings: Callable[..., Settings],
) -> None:
    async with open_pipeline(make_settings(api=KEYS)) as pipe, open_door(pipe) as door:
        assert await asked(door, SCALER) == (200, {"work": 0, "running": 0, "ready": 0, "ready_seconds": 0.0})
        rig = Rig(pipe)
        first, second = [(await rig.accept(chat=chat)).session_key for chat in ("c1", "c2")]
        lease = await rig.lease(first)
        await rig.accept(chat="c1")  # waits for its own key: no worker could help it
        await asyncio.sleep(0.01)
        _, numbers = await asked(door, SCALER)
        assert (numbers["work"], numbers["running"], numbers["ready"]) == (2, 1, 1) and numbers["ready_seconds"] > 0
        await rig.turns(lease)
        await rig.run_turns(second)
        assert (await asked(door, SCALER))[1]["ready"] == 0


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_only_a_key_that_names_the_scope_may_ask_and_it_may_do_nothing_else(
    make_settings: Callable[..., Settings],
) -> None:
    async with open_pipeline(make_settings(api=KEYS)) as pipe, open_door(pipe) as door:
        assert [(await asked(door, key))[0] for key in ("", "wrong", SHOP, SCALER, "test-key")] == [
            401,
            401,
            403,
            200,
            200,
        ]
        posted = await door.request("POST", "/v1/messages", {"authorization": f"Bearer {SCALER}"}, a_body())
        assert posted.status_code == 403
