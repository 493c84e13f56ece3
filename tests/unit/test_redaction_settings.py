"""What the settings say of platforms and redaction. Tests with an id are rows of the behaviour list."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from shared import settings
from shared.errors import ConfigurationError
from shared.platforms.telegram import TelegramSettings
from shared.redaction import FILE, open_redaction
from tests.support.environment import load

SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
TOKEN = "99:canary"


pytestmark = pytest.mark.usefixtures("nothing_set")


def test_G1_the_word_false_disables_and_what_is_malformed_is_said_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours refuses to start on malformed values instead of going on with others than were written."""
    loaded = load(monkeypatch, TELEGRAM__TOKEN=TOKEN, TELEGRAM__ENABLED="false", WEBHOOK__SECRETS=SECRET)
    assert loaded.block(TelegramSettings).enabled is False and loaded.connected == ("local", "webhook")
    for name, value in (("TELEGRAM__EXTRA", "x"), ("TELEGRAM__SEND_TIMEOUT_SECONDS", "soon")):
        with monkeypatch.context() as patch, pytest.raises(ConfigurationError, match="KEYTURN_TELEGRAM__"):
            load(patch, **{name: value})


def test_G2_what_is_on_without_its_secret_does_not_start_and_the_connected_are_sorted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert load(monkeypatch).connected == ("local",)
    with monkeypatch.context() as patch, pytest.raises(ConfigurationError, match="needs TELEGRAM__TOKEN"):
        load(patch, TELEGRAM__ENABLED="true")
    everything = load(monkeypatch, WEBHOOK__SECRETS=SECRET, TELEGRAM__TOKEN=TOKEN, API__KEYS="k")
    assert everything.connected == ("api", "local", "telegram", "webhook")


def test_G3_the_environment_wins_over_the_file_and_a_broken_file_is_no_silent_fallback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """There is one file, keyturn.toml, and no older form of it. A broken one is an error: others would be in force unseen."""
    (tmp_path / "keyturn.toml").write_text('partitions = 3\n[telegram]\nhome_channel = "-5"')
    loaded = load(monkeypatch, PARTITIONS="4")
    assert (loaded.partitions, loaded.block(TelegramSettings).home_channel) == (4, "-5")
    (tmp_path / "keyturn.toml").write_text("partitions = ")
    with pytest.raises(ConfigurationError, match=r"keyturn\.toml"):
        settings.load()


def test_a_redaction_key_is_made_once_and_only_its_owner_reads_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert open_redaction(load(monkeypatch)) is None and not (tmp_path / ".keyturn").exists()
    loaded = load(monkeypatch, REDACT_PII="true")
    first, second = open_redaction(loaded), open_redaction(loaded)
    assert first is not None and first == second and len(first.key) == 32
    kept = tmp_path / ".keyturn" / FILE
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600 and [kept] == list(kept.parent.iterdir())
    kept.write_text("not a key")
    with pytest.raises(ConfigurationError, match="holds no redaction key"):
        open_redaction(loaded)


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"REDACT_PII": "true", "DATABASE_URL": "postgresql://x/y"}, "REDACT_PII needs REDACT_KEY"),
        ({"REDACT_KEY": "too short"}, "at least 16 bytes"),
    ],
)
def test_a_redaction_that_would_not_hold_is_refused(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        load(monkeypatch, **variables)
    assert "too short" not in str(caught.value)


def test_a_key_of_the_settings_is_used_and_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    values: dict[str, Any] = {"REDACT_PII": "true", "REDACT_KEY": "k" * 20, "DATABASE_URL": "postgresql://x/y"}
    loaded = load(monkeypatch, **values)
    redaction = open_redaction(loaded)
    assert redaction is not None and redaction.key == b"k" * 20
    assert "k" * 20 not in repr(loaded) and "k" * 20 in loaded.secret_values()
