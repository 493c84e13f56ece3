"""RESET__*, TIMEZONE and MEMORY__*: each rule whole, what cannot work refused at start."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shared import settings
from shared.context.reset import NEVER, Mode, ResetPolicy
from shared.errors import ConfigurationError
from shared.messages import Source
from tests.support.environment import load


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.upper().startswith(settings.PREFIX)]:
        monkeypatch.delenv(name)


def test_unless_told_nothing_ends_by_itself() -> None:
    policies = settings.load().reset.policies()
    assert policies.ending() == ()
    assert policies.of(Source("telegram", "c")) == NEVER


def test_R15_a_rule_of_a_platform_is_whole_and_null_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load(
        monkeypatch,
        RESET__MODE="both",
        RESET__IDLE_MINUTES="60",
        RESET__NOTIFY_EXCLUDE="api,local",
        RESET__BY_TYPE='{"thread": {"mode": "idle", "idle_minutes": null, "notify": null}}',
        RESET__BY_PLATFORM__TELEGRAM__MODE="daily",
        RESET__BY_PLATFORM__TELEGRAM__AT_HOUR="5",
    )
    policies = loaded.reset.policies()
    assert policies.of(Source("api", "c")) == ResetPolicy("both", idle_minutes=60, notify_exclude=("api", "local"))
    assert policies.of(Source("telegram", "c")) == ResetPolicy("daily", at_hour=5)
    assert policies.of(Source("telegram", "c", "group", thread="1")) == ResetPolicy("idle")
    assert len(policies.ending()) == 3


def test_rules_are_read_from_the_file_too(tmp_path: Path) -> None:
    (tmp_path / "keyturn.toml").write_text(
        'timezone = "Europe/Berlin"\n[reset]\nmode = "idle"\n[reset.by_type.group]\nmode = "daily"\n[memory]\nenabled = false'
    )
    loaded = settings.load()
    assert (loaded.zone.key, loaded.reset.mode, loaded.memory.enabled) == ("Europe/Berlin", "idle", False)
    assert loaded.reset.policies().of(Source("telegram", "c", "group")) == ResetPolicy("daily")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TIMEZONE", "Berlin"),
        ("TIMEZONE", ""),
        ("TIMEZONE", "../etc/passwd"),
        ("RESET__MODE", "weekly"),
        ("RESET__AT_HOUR", "24"),
        ("RESET__IDLE_MINUTES", "0"),
        ("RESET__NOPE", "1"),
        ("RESET__BY_TYPE__ROOM__MODE", "idle"),
        ("RESET__BY_PLATFORM__TELEGARM__MODE", "idle"),
        ("RESET__BY_PLATFORM__TELEGRAM__NOPE", "idle"),
        ("MEMORY__AT_ONCE", "0"),
    ],
)
def test_a_rule_that_cannot_work_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    with pytest.raises(ConfigurationError):
        load(monkeypatch, **{name: value})


@pytest.mark.parametrize("mode", ["idle", "daily", "both"])
def test_the_horizon_is_where_a_policy_begins_to_say_over(mode: Mode) -> None:
    now = datetime(2026, 11, 16, 12, 30, tzinfo=UTC)
    policy = ResetPolicy(mode, idle_minutes=600)
    horizon = policy.horizon(now, UTC)
    assert horizon is not None
    assert policy.reason(horizon.replace(microsecond=999_999, second=0), now, UTC) is None
    assert policy.reason(datetime.fromtimestamp(horizon.timestamp() - 0.001, UTC), now, UTC) is not None
    assert NEVER.horizon(now, UTC) is None
