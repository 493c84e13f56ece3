"""What CI runs leaves no test out unseen: where CI is set, what tests need has to be there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import promtool

ROOT = Path(__file__).parents[2]


def required(tmp_path: Path, *programs: str, **environment: str) -> dict[str, str]:
    """What .ci/run asks of the tests on a machine with these programs, whose user may install nothing."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    (tmp_path / "bin").mkdir()
    for name in ("sh", "dirname", "mkdir", "mktemp", "env"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or name)
    scripts = {"id": "echo 1000", **dict.fromkeys(programs, "true")}
    for path, text in {"run": "env", **{f"bin/{name}": text for name, text in scripts.items()}}.items():
        (tmp_path / path).write_text(f"#!{shutil.which('sh')}\n{text}\n")
        (tmp_path / path).chmod(0o755)
    ran = subprocess.run(
        [str(tmp_path / ".ci/run")],
        env={"PATH": str(tmp_path / "bin"), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    said = dict(line.partition("=")[::2] for line in ran.stdout.splitlines())
    return {name: said.get(name, "") for name in ("BROWSER_TESTS", "PROMTOOL_TESTS")}


def test_where_ci_is_set_browser_and_promtool_are_required(tmp_path: Path) -> None:
    assert required(tmp_path, CI="true") == {"BROWSER_TESTS": "required", "PROMTOOL_TESTS": "required"}


def test_elsewhere_what_is_there_is_required(tmp_path: Path) -> None:
    assert required(tmp_path, "promtool") == {"BROWSER_TESTS": "", "PROMTOOL_TESTS": "required"}


def test_elsewhere_what_is_missing_is_left_out(tmp_path: Path) -> None:
    assert required(tmp_path) == {"BROWSER_TESTS": "", "PROMTOOL_TESTS": ""}


def test_a_missing_promtool_is_an_error_where_it_is_required_and_a_warning_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(promtool.VARIABLE, "required")
    with pytest.raises(AssertionError, match="promtool was not found"):
        promtool.promtool("check")
    monkeypatch.delenv(promtool.VARIABLE)
    with pytest.warns(UserWarning, match="promtool was not found"):
        promtool.promtool("check")
