"""The children of `keyturn up` are forked from a process that has imported everything, and nobody need know it."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from keyturn.cli.forking import ForkServer
from tests.support.place import KEYTURN, Place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    opened = Place(tmp_path)
    yield opened
    opened.close()


def children(pid: int) -> dict[str, int]:
    """The children of a process, by the word after the module in their command line."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            words = (stat.parent / "cmdline").read_bytes().rstrip(b"\0").decode().split("\0")
        except OSError:  # it has ended
            continue
        if int(parent) == pid and state != "Z":
            module = words.index("-m") if "-m" in words else -1
            name = words[module + 2] if words[module + 1] == "keyturn.cli" else words[module + 1]
            found[name] = int(stat.parent.name)
    return found


def signals(pid: int) -> dict[str, str]:
    """What a process does with signals: those it blocks, ignores and handles."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t") for line in lines if line.startswith(("SigBlk", "SigIgn", "SigCgt")))


def files(pid: int) -> set[str]:
    """The files that a process has open, without those that tell nothing by their names."""
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(os.readlink(entry))
        except OSError:
            continue
    return {name for name in found if name.startswith("/") and not name.startswith("/dev/")}


def environment(pid: int) -> set[bytes]:
    return {one for one in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if not one.startswith(b"KEYTURN_")}


@pytest.mark.parametrize("hang_up", [signal.SIG_DFL, signal.SIG_IGN], ids=["", "under nohup"])
def test_a_forked_worker_is_like_one_that_was_started_alone(place: Place, hang_up: signal.Handlers) -> None:
    before = signal.signal(signal.SIGHUP, hang_up)
    try:
        up = place.up()
        forked = children(up.pid)["work"]
        alone = place.start("work", "work").pid
        place.until(lambda: '"working"' in place.said("work", "err"), "work")
    finally:
        signal.signal(signal.SIGHUP, before)
    words = Path(f"/proc/{forked}/cmdline").read_bytes().rstrip(b"\0")
    assert words == Path(f"/proc/{alone}/cmdline").read_bytes().rstrip(b"\0") == "\0".join([*KEYTURN, "work"]).encode()
    assert signals(forked) == signals(alone)
    assert os.getsid(forked) == os.getpgid(forked) == forked
    assert os.readlink(f"/proc/{forked}/cwd") == str(place.directory)
    held = {Path(name).name for name in files(forked) - files(alone) if not name.endswith(".db")}  # .db: of metrics
    assert held <= {"up.err", "work.jsonl"}, held  # so it keeps neither a lock nor a log of `up`'s
    more = environment(forked) - environment(alone)
    assert more <= {
        f"PROMETHEUS_MULTIPROC_DIR={place.directory}/.keyturn/metrics".encode(),
        b"LC_CTYPE=C.UTF-8",  # which Python hands down from `up` where no locale is set
    }


def test_a_killed_child_and_a_killed_fork_server_are_replaced(place: Place) -> None:
    up = place.up()
    killed = children(up.pid)
    for name in ("keyturn.cli.fork_server", "work"):
        os.kill(killed[name], signal.SIGKILL)
    place.until(lambda: children(up.pid).get("work", killed["work"]) != killed["work"], process=up)
    assert children(up.pid)["keyturn.cli.fork_server"] != killed["keyturn.cli.fork_server"]
    assert place.run("chat", "-m", "hello").stdout == "echo: hello\n"
    living = {path.stem.rpartition("_")[2] for path in (place.directory / ".keyturn/metrics").glob("gauge_live*.db")}
    assert living and str(killed["work"]) not in living


def test_a_child_is_started_alone_while_the_fork_server_does_not_answer(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keyturn.cli.forking.ANSWER_SECONDS", 0.1)
    monkeypatch.chdir(place.directory)
    given = place.with_settings(redis_url="redis://127.0.0.1:1/0")
    server = ForkServer(given)
    try:
        [stopped] = [pid for name, pid in children(os.getpid()).items() if name == "keyturn.cli.fork_server"]
        os.kill(stopped, signal.SIGSTOP)
        started = server.start(["work"], {**given, "KEYTURN_AGENT": "lama"})
        assert started.wait() == 78
        assert "keyturn.cli.fork_server" not in children(os.getpid())
    finally:
        server.close()


def test_a_child_of_which_a_killed_fork_server_did_not_tell_ends(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is killed when it has forked and before `up` knows whom."""
    monkeypatch.chdir(place.directory)
    server, forked = ForkServer(place.environment), list[int]()

    class Cut:
        """The line to a server that dies with its answer."""

        def __init__(self, line: socket.socket) -> None:
            self._line, self.sendall, self.close = line, line.sendall, line.close

        def recv(self, size: int) -> bytes:
            forked.append(int(self._line.recv(size)))
            server._server.kill()  # type: ignore[union-attr]
            return b""

    server._line = Cut(server._line)  # type: ignore[assignment,arg-type]
    started = server.start(["logs", "--follow"], place.environment)
    try:
        assert started.pid not in forked
        place.until(lambda: os.waitpid(forked[0], os.WNOHANG)[0])
        assert started.poll() is None
    finally:
        started.send_signal(signal.SIGKILL)
        started.wait()
        server.close()


def test_each_of_many_children_begins_however_slow_others_are(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.directory)
    server = ForkServer(place.environment)
    try:
        started = [server.start(["--version"], place.environment) for _ in range(24)]
        place.until(lambda: all(one.poll() is not None for one in started))
        assert {one.returncode for one in started} == {0}
    finally:
        server.close()


def test_everything_ends_when_up_is_killed(place: Place) -> None:
    up = place.up()
    started = children(up.pid)
    assert {"receive", "work", "housekeep", "dashboard", "keyturn.cli.fork_server"} <= set(started)
    up.kill()
    up.wait()
    place.until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started.values()))
