"""The image: its Dockerfile is clean, and its build steps give a tree that answers as a user without rights, unchanged.

There is no Docker engine here. The same uv commands run into a directory, from the files that the build would get.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.documents import DEPLOY, ROOT, tool

DOCKERFILE = DEPLOY / "Dockerfile"
TEXT = re.sub(r"\\\n\s*", "", DOCKERFILE.read_text())  # one instruction per line
BUILD, FINAL = re.split(r"^(?=FROM )", TEXT, flags=re.M)[1:]
NOBODY = 65534
PATIENCE_SECONDS = 600


def test_the_dockerfile_is_clean() -> None:
    checked = tool("hadolint", str(DOCKERFILE))
    assert checked.returncode == 0, checked.stdout


def test_the_image_is_for_a_user_without_rights_and_starts_keyturn_itself() -> None:
    assert re.search(r"^USER 65532:65532$", FINAL, re.M) and re.search(r'^ENTRYPOINT \["keyturn"\]$', FINAL, re.M)
    assert "uv" not in re.sub(r"COPY --from=build.*", "", FINAL).split() and "pip" not in FINAL
    bases = re.findall(r"^FROM (\S+)", TEXT, re.M)
    assert len(bases) == 2 and len(set(bases)) == 1  # the same Python: what was installed refers to it


def test_the_build_gets_only_what_the_image_is_made_of() -> None:
    assert {path.name for path in context()} == {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "shared",
        "producers",
        "workers",
        "keyturn",
    }
    copied = {name for names in re.findall(r"^COPY (?!--from)(.+) \S+$", BUILD, re.M) for name in names.split()}
    assert copied == {path.name for path in context()}


def context() -> list[Path]:
    """What .dockerignore lets through, at the top."""
    rules = [line for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line and line[0] != "#"]
    kept = [rule[1:] for rule in rules if rule.startswith("!")]
    assert rules[0] == "*"
    return [path for path in sorted(ROOT.iterdir()) if any(fnmatch.fnmatch(path.name, rule) for rule in kept)]


@pytest.fixture(scope="module")
def world() -> Iterator[Path]:
    """A directory that a user without rights can reach."""
    directory = Path(tempfile.mkdtemp(prefix="keyturn-image-", dir=in_memory()))
    directory.chmod(0o755)
    yield directory
    for path in [directory, *folders(directory)]:
        path.chmod(0o755)
    shutil.rmtree(directory)


def in_memory() -> str | None:
    """Where ten thousand small files are written quickly, if there is such a place."""
    shared = Path("/dev/shm")
    if not shared.is_dir() or shutil.disk_usage(shared).free < 500_000_000:
        return None
    return None if os.statvfs(shared).f_flag & os.ST_NOEXEC else str(shared)


def folders(directory: Path) -> Iterator[Path]:
    for path, names, _ in os.walk(directory):
        yield from (Path(path, name) for name in names if not Path(path, name).is_symlink())


def test_the_build_steps_give_a_read_only_tree_that_answers_a_message_without_rights(world: Path) -> None:
    source, tree, data = world / "source", world / "opt", world / "data"
    for path in context():
        copy = shutil.copytree if path.is_dir() else shutil.copy2
        source.mkdir(exist_ok=True)
        copy(path, source / path.name)
    settings = dict(re.findall(r"(UV_[A-Z_]+)=(\S+)", BUILD))
    settings |= {"UV_PROJECT_ENVIRONMENT": str(tree), "UV_PYTHON": python_for_all()}
    settings.pop("UV_CACHE_DIR")  # that of this machine: it has the packages already
    settings["UV_COMPILE_BYTECODE"] = "0"  # only slow here; the image has it for a faster start
    steps = re.findall(r"^RUN --mount=\S+ (uv sync .*)$", BUILD, re.M)
    assert len(steps) == 2
    for step in steps[1:]:  # the first installs a part of the second, for the sake of layers
        program, *arguments = re.sub(
            r"--extra \S+ ?", "", step
        ).split()  # the extras are 64 MB, and answer nothing here
        assert program == "uv"
        run([uv(), *arguments, "--quiet"], source, {**os.environ, **settings})
    shutil.rmtree(source)  # the final stage gets the tree alone
    for path in [tree, *folders(tree)]:
        path.chmod(0o555)
    data.mkdir()
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    if user:
        os.chown(data, NOBODY, NOBODY)
    variables = {
        "PATH": f"{tree}/bin:/usr/bin:/bin",
        "HOME": str(data),
        "PYTHONDONTWRITEBYTECODE": "1",
        "KEYTURN_DATA_DIR": str(data / "keyturn"),
    }
    answered = run([str(tree / "bin/keyturn"), "chat", "-m", "hello"], data, variables, **user)
    assert "echo: hello" in answered


def run(command: list[str], directory: Path, variables: dict[str, str], **options: object) -> str:
    ended = subprocess.run(
        command,
        cwd=directory,
        env=variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        **options,  # type: ignore[call-overload]
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return str(ended.stdout)


def uv() -> str:
    """The uv that ./run uses."""
    here = shutil.which("uv") or str(ROOT / ".tools/bin/uv")
    assert Path(here).exists()
    return here


def python_for_all() -> str:
    """A Python that a user without rights may run: that of the tests, unless it lies in somebody's own directory."""
    for candidate in (os.path.realpath(sys.executable), "/usr/local/bin/python3", "/usr/bin/python3"):
        parents = Path(candidate).resolve().parents
        if Path(candidate).exists() and all(parent.stat().st_mode & stat.S_IXOTH for parent in parents):
            return candidate
    raise AssertionError("no Python that every user may run")
