"""`keyturn up` as a new user meets it: one per directory, wrong settings said at once, an end that says what it waits for."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import orjson
import psycopg
import pytest

from shared.embedded import postgres, running
from tests.flow.told import VARIABLE
from tests.support.place import KEYTURN, Place
from tests.support.terminal import CTRL_C, Terminal

# An agent whose import lasts until the file `go` is there: so long its `up` is starting.
HELD_AGENT = """
import pathlib, time
while not pathlib.Path("go").exists():
    time.sleep(0.02)
async def answer(text):
    return f"held {text}"
"""

# An agent that kills the first worker which runs it: the message is tried again in a process of its own.
DYING_AGENT = """
import os, pathlib, signal
async def answer(text):
    died = pathlib.Path("died")
    if not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return text[::-1]
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    opened = Place(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def starting(place: Place) -> subprocess.Popen[bytes]:
    """An `up` that is not ready before the file `go` is there."""
    place.write("held.py", HELD_AGENT)
    process = place.start("up", "up", "--port", "0", "--agent", "held:answer")
    place.until(lambda: running.holder(place.directory / ".keyturn") == process.pid, process=process)
    return process


@pytest.fixture
def crowded(place: Place) -> Place:
    """A directory with packages that have the names of Keyturn's, and of one that Keyturn needs."""
    for name in ("shared", "producers", "workers", "redis"):
        (place.directory / name).mkdir()
        place.write(f"{name}/__init__.py", f"raise RuntimeError('imported {name} of the working directory')\n")
    return place


def go(place: Place, process: subprocess.Popen[bytes]) -> None:
    place.write("go", "")
    place.until(lambda: place.said("up").startswith("ready "), process=process)


# -- one per directory


def test_a_second_up_in_a_directory_is_refused_from_the_first_moment_on(
    place: Place, starting: subprocess.Popen[bytes]
) -> None:
    refused = place.run("up", "--port", "0")
    assert refused.returncode == 78 and refused.stderr.count("\n") == 1
    assert "is starting in" in refused.stderr and str(starting.pid) in refused.stderr
    go(place, starting)
    refused = place.run("up", "--port", "0")
    assert refused.returncode == 78 and "already up" in refused.stderr and str(starting.pid) in refused.stderr
    assert starting.poll() is None


def test_chat_waits_for_an_up_that_is_starting(place: Place, starting: subprocess.Popen[bytes]) -> None:
    chat = place.start("chat", "chat", "-m", "hello")
    place.until(lambda: "waiting for the `keyturn up`" in place.said("chat", "err"), "chat", chat)
    go(place, starting)
    place.until(lambda: chat.poll() is not None, "chat")
    assert (chat.returncode, place.said("chat")) == (0, "held hello\n")
    assert starting.poll() is None


def test_a_killed_up_leaves_the_directory_free(place: Place) -> None:
    first = place.up()
    first.kill()
    first.wait()
    assert running.find(place.directory / ".keyturn") is None
    assert place.up().pid != first.pid


def test_ready_means_that_the_workers_of_this_up_answer(place: Place) -> None:
    first = place.up()
    first.kill()  # Redis remembers its worker
    first.wait()
    again = place.run("up", "--port", "0", agent="lama", log_level="error")
    assert (again.returncode, again.stdout) == (78, "")


def test_what_an_agent_prints_stands_between_the_log_lines(place: Place) -> None:
    place.write("mybot.py", "def answer(text):\n    print('printed', text)\n    return text\n")
    place.up(agent="mybot:answer")
    assert place.run("chat", "-m", "hello").stdout == "hello\n"
    place.until(lambda: "\nprinted hello\n" in place.said("up", "err"))
    assert "printed" not in place.said("up")


def test_an_agent_that_blocks_the_event_loop_is_told_of(place: Place) -> None:
    place.write("mybot.py", "import time\nasync def answer(text):\n    time.sleep(4)\n    return text\n")
    place.up(agent="mybot:answer")
    assert place.run("chat", "-m", "hello").stdout == "hello\n"
    place.until(lambda: "the event loop stood still" in place.said("up", "err"))
    assert "asyncio.to_thread" in place.said("up", "err")


# -- what cannot work is said at once


def taken_port() -> tuple[socket.socket, str]:
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    return taken, str(taken.getsockname()[1])


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ({"agent": "lama"}, 78, "AGENT=lama: not a known agent; use echo, llm, local, command, http or module:object"),
        ({"agent": "lama", "workers": "3"}, 78, "AGENT=lama: not a known agent"),
        ({"agent": "nosuch:x"}, 78, "No module named 'nosuch'"),
        ({"agent": "lacking:answer"}, 78, "lacking.py, line 2)"),
        ({"agent": "mybot:nope"}, 78, "has no attribute 'nope'"),
        ({"agent": "time:answer"}, 78, "has no attribute 'answer': <module 'time' (built-in)>"),
        ({"agent": "broken:answer"}, 78, "importing broken raised ZeroDivisionError"),
        ({"agent": "mybot:Bot"}, 78, "AGENT=mybot:Bot: Bot() raised TypeError: Bot.__init__() missing 1 required"),
        ({"agent": "llm"}, 78, "needs LLM__MODEL"),
        ({"agent": "llm", "llm__model": "nosuch:model"}, 78, "LLM__MODEL=nosuch:model"),
        ({"redis_url": "foo://127.0.0.1:1"}, 78, "REDIS_URL"),
        ({"redis_url": "redis://:canary@127.0.0.1:1/0"}, 1, "REDIS_URL: redis://127.0.0.1:1/0 does not answer"),
        ({"database_url": "mysql://u:canary@127.0.0.1/x"}, 78, "DATABASE_URL must begin with"),
        ({"database_url": "postgresql://u:canary@127.0.0.1:1/x"}, 1, "does not answer"),
        ({"database_url": "sqlite:///mybot.py/keyturn.db"}, 78, "mybot.py/keyturn.db cannot be made"),
        ({"webhook__secrets": "whsec_canary"}, 78, "WEBHOOK__SECRETS: a secret is whsec_ and"),
        ({"data_dir": "/proc/nope"}, 78, "DATA_DIR=/proc/nope cannot be a directory"),
        ({"data_dir": "mybot.py"}, 78, "DATA_DIR=mybot.py cannot be a directory"),
    ],
)
def test_a_wrong_setting_ends_up_at_once_in_one_sentence(
    place: Place, settings: dict[str, str], code: int, words: str
) -> None:
    bot = "class Bot:\n    def __init__(self, model): ...\n    async def run(self, turn): ...\n"
    place.write("mybot.py", f"async def answer(text): return text\n{bot}")
    place.write("broken.py", "1 / 0\n")
    place.write("lacking.py", "# what it needs is not installed\nimport nosuch\n")
    ended = place.run("up", "--port", "0", log_level="error", **settings)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert ended.stderr.startswith("keyturn: ") and words in ended.stderr and ended.stderr.count("\n") == 1
    assert "canary" not in ended.stderr


@pytest.mark.parametrize(
    "settings",
    [{"agent": "lama"}, {"agent": "nosuch:x"}, {"agent": "llm"}, {"agents__helper__agent": "nosuch.more:x"}],
)
def test_a_wrong_agent_is_found_before_any_server_starts(place: Place, settings: dict[str, str]) -> None:
    ended = place.run("up", "--port", "0", **settings)
    assert ended.returncode == 78 and "AGENT" in ended.stderr
    assert "starting" not in ended.stderr and not (place.directory / ".keyturn" / "valkey").exists()


@pytest.mark.parametrize("key", ["sk-…", "sk 1", "sk-1\n", "клuч"])
def test_a_key_that_no_header_can_hold_is_one_sentence_at_the_start(place: Place, key: str) -> None:
    model = {"agent": "llm", "llm__model": "openai:gpt-5"}
    own = place.run("up", "--port", "0", log_level="error", llm__api_key=key, **model)
    place.environment["OPENAI_API_KEY"] = key
    for ended in (own, place.run("up", "--port", "0", log_level="error", **model)):
        assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (78, "", 1)
        assert "is none that a key can have" in ended.stderr and key.strip() not in ended.stderr


def test_up_says_which_platform_lacks_what_and_that_nobody_may_talk(place: Place) -> None:
    place.up(slack__bot_token="xoxb-1", discord__allowed_users="42")
    lines = [orjson.loads(line) for line in place.said("up", "err").splitlines()]
    doubts = [line for line in lines if "fix" in line]
    assert [line["event"] for line in doubts] == [
        "discord: is off, although DISCORD__ALLOWED_USERS is set",
        "slack: replies can be sent, and no message comes in",
        "slack: nobody may talk to this bot, except people who were paired",
    ]
    assert "KEYTURN_SLACK__APP_TOKEN" in doubts[1]["fix"] and "KEYTURN_SLACK__ALLOWED_USERS" in doubts[2]["fix"]


@pytest.mark.parametrize(
    ("platform", "names"), [("telegram", ["TELEGRAM__TOKEN"]), ("signal", ["SIGNAL__HTTP_URL", "SIGNAL__ACCOUNT"])]
)
def test_a_listener_for_a_platform_that_is_off_names_the_settings_that_it_needs(
    place: Place, platform: str, names: list[str]
) -> None:
    ended = place.run("listen", platform, redis_url="redis://127.0.0.1:1/0")
    assert (ended.returncode, ended.stderr.count("\n")) == (78, 1)
    assert f"listen {platform}: {platform} is off: set KEYTURN_" in ended.stderr
    assert all(f"KEYTURN_{name}" in ended.stderr for name in names)


@pytest.mark.parametrize("command", ["up", "receive"])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "99999"], "a port is a number from 0 to 65535"),
        (["--host", "nope.invalid"], "host nope.invalid is not an address of this machine"),
        (["--host", "192.0.2.1"], "host 192.0.2.1 is not an address of this machine"),
        (["--port", "TAKEN"], "is in use: name another with --port"),
    ],
)
def test_an_address_that_cannot_be_had_is_named(place: Place, command: str, arguments: list[str], words: str) -> None:
    taken, port = taken_port()
    with taken:
        given = [port if argument == "TAKEN" else argument for argument in arguments]
        ended = place.run(
            command, *given, log_level="error", redis_url="redis://127.0.0.1:1/0" if command != "up" else ""
        )
    assert (ended.returncode, ended.stdout) == (78, "")
    assert ended.stderr.startswith("keyturn: ") and words in ended.stderr and ended.stderr.count("\n") == 1


@pytest.fixture(params=["sqlite", "postgres"])
def unmigrated(request: pytest.FixtureRequest, postgres_server: postgres.Postgres, tmp_path: Path) -> Iterator[str]:
    """A database without tables."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/empty.db"
        return
    name = f"empty_{uuid4().hex}"
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
        yield postgres_server.url.rpartition("/")[0] + f"/{name}"
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


def test_migrate_says_what_it_did_and_what_it_would_do(place: Place) -> None:
    would, did, nothing = (place.run("migrate", *more).stdout for more in (("--dry-run",), (), ()))
    assert would.startswith("would apply 0001_spine\n") and would.count("would apply ") == would.count("\n")
    assert did == would.replace("would apply", "applied") and nothing == "the schema is up to date\n"


@pytest.mark.parametrize("command", [("work",), ("receive", "--port", "0"), ("housekeep",), ("chat", "-m", "hello")])
def test_a_process_on_an_unmigrated_database_says_how_to_mend_it(
    place: Place, unmigrated: str, redis_url: str, command: tuple[str, ...]
) -> None:
    ended = place.run(*command, database_url=unmigrated, redis_url=redis_url, log_level="error")
    assert (ended.returncode, ended.stdout) == (78, "")
    assert ended.stderr.count("\n") == 1 and "run `keyturn migrate`" in ended.stderr
    assert "0001_spine to " in ended.stderr and "0002_" not in ended.stderr
    assert not (place.directory / "empty.db").exists()


# -- what a terminal shows


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Place]:
    """A place whose agent answers when it is told."""
    opened = Place(tmp_path, agent="tests.flow.told:agent")
    opened.environment[VARIABLE] = str(tmp_path)
    yield opened
    opened.close()


def in_terminal(place: Place, *arguments: str, columns: int = 100, **settings: str) -> Terminal:
    return Terminal([*KEYTURN, *arguments], cwd=place.directory, env=place.with_settings(**settings), columns=columns)


def begun(place: Place) -> Callable[[], bool]:
    return (place.directory / "begun").exists


def test_on_a_terminal_up_shows_its_steps_as_lines_for_a_person(place: Place) -> None:
    with in_terminal(place, "up", "--port", "0") as terminal:
        terminal.until("ready http://")
        terminal.until("housekeep housekeeping")
        for step in ("starting Valkey", "schema up to date", "starting receive, work 1, housekeep"):
            assert step in terminal.shown
        assert re.search(r"^\d\d:\d\d:\d\d info    up        starting Valkey", terminal.shown, re.MULTILINE)
        assert "{" not in terminal.shown
        terminal.type(CTRL_C)
        assert terminal.ended() == 0


def test_logs_are_json_where_there_is_no_terminal_or_where_the_settings_say_so(place: Place) -> None:
    place.up()
    files = place.directory / ".keyturn/logs"
    assert {path.stat().st_mode & 0o777 for path in files.iterdir()} == {0o600}
    assert "work      working" in place.run("logs").stdout  # kept for later, as lines for a person
    assert place.run("down").returncode == 0
    lines = [orjson.loads(line) for line in place.said("up", "err").splitlines()]
    assert "starting Valkey" in [line["event"] for line in lines if line["process"] == "up"]
    with in_terminal(place, "up", "--port", "0", log_format="json") as terminal:
        terminal.until("ready http://")
        assert orjson.loads(terminal.shown.splitlines()[0])["event"] == "starting Valkey"


def test_stopping_says_what_it_waits_for_and_a_second_ctrl_c_stops_now(slow: Place) -> None:
    with in_terminal(slow, "up", "--port", "0", grace_seconds="300") as terminal:  # no machine is so slow
        terminal.until("ready http://")
        slow.start("chat", "chat", "-m", "story")
        slow.until(begun(slow))
        terminal.type(CTRL_C)
        terminal.until("stopping: running turns may end within 300 s; Ctrl-C again stops now")
        terminal.until("info    up        waiting for ")  # on a slow machine for others, too
        assert re.search(r"waiting for .*\bwork 1\b", terminal.shown)
        terminal.type(CTRL_C)
        assert terminal.ended() == 0
        assert re.search(r"killing .*\bwork 1\b.*; unfinished turns run again", terminal.shown)
    (slow.directory / "go-story").touch()
    slow.up()  # the turn that was cut off runs again
    slow.until(lambda: slow.said("chat") == "done story\n")


def test_a_worker_alone_stops_at_once_on_a_second_ctrl_c(slow: Place, redis_url: str) -> None:
    slow.environment["KEYTURN_REDIS_URL"] = redis_url
    assert slow.run("migrate").returncode == 0
    with in_terminal(slow, "work") as terminal:
        terminal.until("working")
        slow.start("chat", "chat", "-m", "story")
        slow.until(begun(slow))
        terminal.type(CTRL_C)
        terminal.until("stopping: running turns may end; Ctrl-C again stops now")
        terminal.type(CTRL_C)
        assert terminal.ended() == 130


# -- the end


def test_down_stops_the_up_of_this_directory_and_no_other(place: Place, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Place(tmp_path / "other")
    try:
        beside = other.up()
        here = place.up()
        stopped = place.run("down")
        assert (stopped.returncode, here.wait()) == (0, 0) and stopped.stdout.endswith("stopped\n")
        assert beside.poll() is None
        again = place.run("down")
        assert (again.returncode, again.stderr) == (1, "keyturn: nothing is up in .keyturn\n")
    finally:
        other.close()


def test_down_now_waits_for_no_turn(slow: Place) -> None:
    up = slow.up()
    slow.start("chat", "chat", "-m", "story")
    slow.until(begun(slow))
    assert slow.run("down", "--now").returncode == 0
    assert up.wait() == 0 and "done story" not in slow.said("chat")


def test_doctor_names_the_agent_that_is_really_running(place: Place) -> None:
    place.write("mybot.py", "async def answer(text): return text\n")
    place.up("--agent", "mybot:answer")
    checks = orjson.loads(place.run("doctor", "--json").stdout)["checks"]
    [agent] = [check for check in checks if check["check"] == "agent"]
    assert agent["level"] == "ok" and agent["detail"].startswith("mybot:answer")


def test_what_only_reads_the_database_needs_no_redis(place: Place) -> None:
    up = place.up()
    assert place.run("chat", "-m", "hello").stdout == "echo: hello\n"
    assert place.run("down").returncode == 0 and up.wait() == 0
    for command in (
        ("sessions", "list"),
        ("sessions", "show", "agent:main:local:dm:terminal"),
        ("sessions", "search", "hello"),
        ("usage",),
        ("dead", "list"),
    ):
        ended = place.run(*command)
        assert (ended.returncode, ended.stderr) == (0, ""), command
    assert "hello" in place.run("sessions", "list").stdout


def test_a_table_that_does_not_fit_the_terminal_becomes_a_block_of_lines_for_each_row(place: Place) -> None:
    place.up()
    assert place.run("chat", "-m", "hello").returncode == 0
    with in_terminal(place, "sessions", "list", columns=60) as terminal:
        assert terminal.ended() == 0
        lines = terminal.shown.splitlines()
    assert any(line.split() == ["key", "agent:main:local:dm:terminal"] for line in lines), lines
    assert max(map(len, lines)) <= 60
    with in_terminal(place, "sessions", "list", columns=250) as terminal:
        assert terminal.ended() == 0
        assert terminal.shown.split()[:3] == ["session", "key", "title"]


def test_shell_completion_installs(place: Place) -> None:
    typed = (
        f"{shlex.join(KEYTURN)} --install-completion; exit $?"  # the command looks for the shell that it was typed in
    )
    environment = place.environment
    installed = subprocess.run(
        ["bash", "-c", typed], env=environment, cwd=place.directory, capture_output=True, text=True
    )
    assert installed.returncode == 0, installed.stderr
    script = next(path for path in place.directory.rglob("*") if path.is_file() and "keyturn" in path.name)
    assert "_KEYTURN_COMPLETE" in script.read_text()
    environment = {
        **environment,
        "_KEYTURN_COMPLETE": "complete_bash",
        "COMP_WORDS": "keyturn do",
        "COMP_CWORD": "1",
    }
    completed = subprocess.run([*KEYTURN], env=environment, cwd=place.directory, capture_output=True, text=True)
    assert {"down", "doctor"} <= set(completed.stdout.split())


@pytest.mark.parametrize("command", ["up", "work", "chat"])
def test_help_names_every_agent(place: Place, command: str) -> None:
    shown = place.run(command, "--help").stdout
    assert "echo, llm, local, command, http or module:object" in " ".join(shown.replace("│", " ").split())


def test_a_signal_for_up_reaches_no_child_twice(place: Place) -> None:
    """Children are told to stop by `up` alone: a Ctrl-C in its terminal would cut their turns short."""
    up = place.up()
    children = subprocess.run(["pgrep", "-P", str(up.pid)], capture_output=True, text=True).stdout.split()
    assert len(children) >= 4 and all(os.getpgid(int(pid)) != os.getpgid(up.pid) for pid in children)
    up.send_signal(signal.SIGINT)
    assert up.wait() == 0
    for pid in children:
        assert not Path(f"/proc/{pid}").exists()


# -- modules of the working directory


def test_packages_named_like_ours_in_the_working_directory_are_not_imported_instead(crowded: Place) -> None:
    crowded.write("mybot.py", DYING_AGENT)
    crowded.up("--agent", "mybot:answer", lease_seconds="1")
    asked = crowded.run("chat", "-m", "hello")
    assert asked.stdout == "olleh\n", crowded.said("up", "err")
    assert (crowded.directory / "died").exists()  # so it was answered by a process that a second worker started for it


def test_a_chat_that_starts_everything_itself_does_so_beside_packages_named_like_ours(crowded: Place) -> None:
    asked = crowded.run("chat", "-m", "hello")
    assert asked.stdout == "echo: hello\n", asked.stderr
