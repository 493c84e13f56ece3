"""`keyturn doctor` says what others could read, and a receiver tells strangers nothing about itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from keyturn.cli.doctor.exposure import check_exposure, is_here, readable_files
from shared.pipeline import Pipeline
from shared.platforms.webhook import WebhookSettings
from shared.settings import Settings
from tests.conftest import WEBHOOK_SECRET
from tests.security.receiver import receiving

SECRETS = (SecretStr(WEBHOOK_SECRET),)


@pytest.mark.parametrize(("mode", "level"), [(0o600, "ok"), (0o400, "ok"), (0o640, "warn"), (0o604, "warn")])
def test_a_settings_file_that_others_can_read_is_named(tmp_path: Path, mode: int, level: str) -> None:
    path = tmp_path / ".env"
    path.write_text("KEYTURN_API__KEYS=canary")
    path.chmod(mode)
    [finding] = readable_files((path, tmp_path / "not there"))
    assert finding.level == level and "canary" not in finding.detail
    assert (str(path) in finding.detail) == (level == "warn")


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("redis://:x@127.0.0.1:1/0", True),
        ("redis://localhost", True),
        ("http://[::1]:8/", True),
        ("redis://redis.example.org", False),
        ("http://169.254.169.254/", False),
        ("http://127.0.0.1.example.org/", False),
        ("http://[broken/", False),
    ],
)
def test_only_loopback_is_this_machine(url: str, here: bool) -> None:
    assert is_here(url) is here


def test_what_travels_in_the_clear_is_named_without_its_password(tmp_path: Path) -> None:
    settings = Settings(
        _env_file=None,  # type: ignore[call-arg]
        data_dir=tmp_path,
        redis_url=SecretStr("redis://:canary@redis.example.org/0,rediss://:canary@other.example.org/0"),
        webhook=WebhookSettings(secrets=SECRETS, callback_url="http://user:canary@example.org/replies"),
    )
    found = [finding for finding in check_exposure(settings) if finding.level == "warn" and finding.check != "files"]
    assert [finding.check for finding in found] == ["redis redis://redis.example.org/0", "callback"]
    assert "canary" not in repr(found)


async def test_an_answer_names_neither_the_software_nor_the_clock_of_its_machine(pipe: Pipeline) -> None:
    async with receiving(pipe) as receiver:
        answers = [await receiver.post(path, b"{}", {}) for path in ("/webhooks/webhook", "/nowhere")]
    assert [answer.status_code for answer in answers] == [401, 404]
    assert not [name for answer in answers for name in answer.headers if name in ("server", "date", "x-powered-by")]
