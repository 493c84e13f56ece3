"""`./run`, the script that everything begins with."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from shared.embedded import child, running

ROOT = Path(__file__).parents[2]
RUN = str(ROOT / "run")
PATIENCE_SECONDS = 120.0
SOURCE_COMMANDS = re.findall(r"^  (\w+)\) ", (ROOT / "run").read_text(), re.MULTILINE)
# In uv's place: notes the directory that it is called in and does nothing.
NOTING_UV = """#!/bin/sh
pwd >>"$NOTED"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A user's environment, where Python may write no bytecode. uv keeps its cache where it was."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KEYTURN_", "PYTHON"))}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def up(tmp_path: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """`./run up` from another directory, with an agent that is there, ready."""
    (tmp_path / "otherbot.py").write_text("def answer(text): return text[::-1]\n")
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        command = [RUN, "up", "--port", "0", "--agent", "otherbot:answer"]
        process = child.start(command, cwd=tmp_path, env=environment, stdout=out, stderr=err)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (tmp_path / "out").read_text().startswith("ready "):
        assert process.poll() is None and time.monotonic() < deadline, (tmp_path / "err").read_text()
        time.sleep(0.05)
    yield process
    child.stop(process, signal.SIGTERM, 60)


def run(*arguments: str, cwd: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [RUN, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )


def test_commands_work_in_the_directory_they_are_given_in(
    tmp_path: Path, environment: dict[str, str], up: subprocess.Popen[bytes]
) -> None:
    assert run("chat", "-m", "hello", cwd=tmp_path, environment=environment).stdout == "olleh\n"
    exported = run("sessions", "export", "--all", "--out", "conv.jsonl", cwd=tmp_path, environment=environment)
    assert exported.returncode == 0, exported.stderr
    assert "olleh" in (tmp_path / "conv.jsonl").read_text()
    (tmp_path / "workspace").mkdir()
    imported = run("import", "nanobot", "workspace", "--dry-run", cwd=tmp_path, environment=environment)
    assert "does not exist" not in imported.stderr
    assert (tmp_path / ".keyturn").is_dir()


def test_killing_what_was_started_orphans_nothing(tmp_path: Path, up: subprocess.Popen[bytes]) -> None:
    assert running.holder(tmp_path / ".keyturn") == up.pid  # no other program stands between
    children = subprocess.run(["pgrep", "-P", str(up.pid)], capture_output=True, text=True).stdout.split()
    assert len(children) >= 4
    up.kill()
    up.wait()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(Path(f"/proc/{pid}").exists() for pid in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_everything_is_compiled_although_python_may_not_write_it(tmp_path: Path, environment: dict[str, str]) -> None:
    module = ROOT / "keyturn/cli/up.py"
    compiled = Path(cache_from_source(str(module)))
    compiled.unlink(missing_ok=True)
    module.touch()  # changed, as by an update of the source
    assert run("--version", cwd=tmp_path, environment=environment).returncode == 0
    assert compiled.exists()
    for package in ("shared", "producers", "workers"):
        for source in (ROOT / package).rglob("*.py"):
            assert Path(cache_from_source(str(source))).exists(), source


@pytest.mark.parametrize("command", SOURCE_COMMANDS)
def test_commands_about_the_source_run_beside_it_wherever_they_are_given(
    tmp_path: Path, environment: dict[str, str], command: str
) -> None:
    (tmp_path / "uv").write_text(NOTING_UV)
    (tmp_path / "uv").chmod(0o755)
    noted = tmp_path / "noted"
    path = f"{tmp_path}{os.pathsep}{environment['PATH']}"
    ended = run(command, cwd=tmp_path, environment={**environment, "PATH": path, "NOTED": str(noted)})
    assert ended.returncode == 0, ended.stderr
    assert noted.read_text().splitlines()[-1] == str(ROOT)


@pytest.mark.parametrize(
    ("file", "line", "extra", "expected"),
    [
        ("keyturn.toml", 'agent = "local"  # the small one', {}, True),
        ("keyturn.toml", "[agents.helper]\nagent='local'", {}, True),
        (".env", "KEYTURN_AGENT=local", {}, True),
        (".env", "KEYTURN_AGENTS__HELPER__AGENT=local", {}, True),
        ("keyturn.toml", 'agent = "locally:answer"', {}, False),
        ("keyturn.toml", '# agent = "local"', {}, False),
        ("keyturn.toml", 'agent = "local"', {"KEYTURN_AGENT": "echo"}, False),
        (".env", "", {"KEYTURN_AGENT": "local"}, True),
    ],
)
def test_the_packages_of_the_local_model_are_installed_wherever_the_settings_name_it(
    tmp_path: Path, environment: dict[str, str], file: str, line: str, extra: dict[str, str], expected: bool
) -> None:
    (tmp_path / "bin").mkdir()
    for name, script in (("uv", '#!/bin/sh\necho "$@" >>"$NOTED"\n'), ("keyturn", "#!/bin/sh\n")):
        (tmp_path / "bin" / name).write_text(script)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / file).write_text(f"{line}\n")
    (tmp_path / ".compiled").touch()
    noted, path = tmp_path / "noted", f"{tmp_path / 'bin'}{os.pathsep}{environment['PATH']}"
    own = {"PATH": path, "NOTED": str(noted), "UV_PROJECT_ENVIRONMENT": str(tmp_path)}
    assert run("up", cwd=tmp_path, environment={**environment, **own, **extra}).returncode == 0
    assert ("--group local-model" in noted.read_text()) == expected


def test_help_names_every_command_about_the_source_and_those_of_keyturn(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    helped = run("help", cwd=tmp_path, environment=environment)
    assert helped.returncode == 0, helped.stderr
    assert [command for command in SOURCE_COMMANDS if not re.search(rf"\b{command}\b", helped.stdout)] == []
    assert "Usage: keyturn" in helped.stdout


def test_every_hook_calls_a_command_of_the_script() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    called = re.findall(r"^ *entry: \./run (\w+)", hooks, re.MULTILINE)
    assert len(called) == hooks.count("entry:") and set(called) <= set(SOURCE_COMMANDS)
