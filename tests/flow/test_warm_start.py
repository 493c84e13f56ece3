"""Commands that tests start warm behave like those that are started cold."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.place import Place
from tests.support.warm_start import COLD


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        (("--version",), {}),
        (("migrate",), {}),
        (("listen", "telegram"), {"redis_url": "redis://127.0.0.1:1/0"}),
        (("no-such-command",), {}),
        (("status",), {"partitions": "none"}),
    ],
)
def test_a_warm_command_says_and_returns_what_a_cold_one_does(
    tmp_path: Path, arguments: tuple[str, ...], settings: dict[str, str]
) -> None:
    told = []
    for name in ("warm", "cold"):
        (tmp_path / name).mkdir()
        place = Place(tmp_path / name)
        place.environment |= {COLD: "1"} if name == "cold" else {}
        ended = place.run(*arguments, **settings)
        told.append((ended.returncode, ended.stdout, ended.stderr))
    assert told[0] == told[1]


def test_a_warm_command_is_a_child_that_ends_by_a_signal_and_takes_its_own_along(tmp_path: Path) -> None:
    place = Place(tmp_path)
    up = place.up()
    below = [pid for pid, parent in _parents().items() if parent == up.pid]
    assert b"warm_start" in Path(f"/proc/{up.pid}/cmdline").read_bytes()
    assert _parents()[up.pid] == os.getpid() and len(below) >= 5  # Valkey and four of `up`
    up.kill()
    assert up.wait() == -signal.SIGKILL
    place.until(lambda: not any(_runs(pid) for pid in below))


def _parents() -> dict[int, int]:
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        found[int(path.parent.name)] = int(words[1])
    return found


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
