"""`keyturn init`: a first keyturn.toml."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tomlkit

from keyturn.cli.first_settings import first_settings
from shared import settings
from tests.support.place import KEYTURN, Place
from tests.support.terminal import ENTER, Terminal

_COMMENTED = re.compile(r"^# (?=[a-z_]+ = )", re.M)


def test_the_first_settings_are_true_as_they_stand_and_with_every_comment_a_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plain = settings.Settings()
    text = first_settings({"": {"agent": "echo"}})
    (tmp_path / "keyturn.toml").write_text(text)
    assert settings.load() == plain  # what is not a comment is the default
    (tmp_path / "keyturn.toml").write_text(_COMMENTED.sub("", text))
    loaded = settings.load()
    assert loaded.llm.model == "openai:gpt-5" and loaded.budget.user_tokens_per_day == 200_000
    differing = {name for name in settings.Settings.model_fields if getattr(loaded, name) != getattr(plain, name)}
    assert differing == {"llm", "command", "http", "budget"}  # examples, where there is no default


def test_a_first_file_is_written_by_options_and_never_over_another(tmp_path: Path) -> None:
    place = Place(tmp_path)
    wrong = place.run("init", "--agent", "llm")
    assert wrong.returncode == 78 and "LLM__MODEL" in wrong.stderr and list(tmp_path.iterdir()) == []
    made = place.run("init")
    assert (made.returncode, made.stderr) == (0, "") and "keyturn connect PLATFORM" in made.stdout
    path = tmp_path / "keyturn.toml"
    assert tomlkit.parse(path.read_text())["agent"] == "echo" and path.stat().st_mode & 0o777 == 0o600
    before = path.read_text()
    again = place.run("init", "--agent", "local")
    assert again.returncode == 78 and "is there already" in again.stderr and path.read_text() == before
    assert [each.name for each in tmp_path.iterdir()] == ["keyturn.toml"]


def test_a_first_file_is_written_by_answers_and_the_key_is_not_shown(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with Terminal([*KEYTURN, "init"], cwd=tmp_path, env=place.environment, columns=200) as terminal:
        for prompt, typed in (
            ("Who answers [echo]:", "llm"),
            ("Which model:", ""),
            ("it is needed", "some-model"),
            ("Its address:", "http://localhost:11434/v1"),
            ("The provider's key:", "canary-key"),
        ):
            terminal.until(prompt)
            terminal.type(typed + ENTER)
        assert terminal.ended() == 0, terminal.shown
        assert "canary" not in terminal.shown
    made = tomlkit.parse((tmp_path / "keyturn.toml").read_text()).unwrap()
    assert (made["agent"], made["llm"]) == ("llm", {"model": "some-model", "base_url": "http://localhost:11434/v1"})
    dotenv = tmp_path / ".env"
    assert dotenv.read_text() == "KEYTURN_LLM__API_KEY=canary-key\n" and dotenv.stat().st_mode & 0o777 == 0o600


def test_a_first_file_that_cannot_be_written_leaves_no_key_behind(tmp_path: Path) -> None:
    """`keyturn.toml` is a link that leads nowhere: it is not there, and nothing can take its place."""
    place = Place(tmp_path)
    (tmp_path / "keyturn.toml").symlink_to(tmp_path / "gone" / "keyturn.toml")
    ended = place.run("init", "--agent", "llm", "--model", "m", "--api-key", "canary-key")
    assert ended.returncode == 78 and "keyturn.toml" in ended.stderr and "canary" not in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["keyturn.toml"]
