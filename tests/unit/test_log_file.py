"""Log files: bounded, private, shared by processes of a kind, and read by conversation or message."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from shared.errors import ConfigurationError, NotFound
from shared.log_file import SUFFIX, LogFile
from shared.reading.logs import LogQuery, LogReader

KEY = "agent:main:api:dm:c1"


def line(second: int, **fields: Any) -> str:
    about = {"event": "x", "level": "info", "timestamp": f"2026-11-17T10:00:{second:02}.000000Z", **fields}
    return orjson.dumps(about).decode()


@pytest.fixture
def files(tmp_path: Path) -> Iterator[tuple[LogFile, LogFile]]:
    receive, work = LogFile(tmp_path, "receive"), LogFile(tmp_path, "work")
    yield receive, work
    receive.close()
    work.close()


def events(lines: Any) -> list[Any]:
    return [found["event"] for found in lines]


def test_a_log_file_is_private_and_its_name_is_harmless(tmp_path: Path) -> None:
    LogFile(tmp_path / "logs", "listen ../Tele gram").close()
    [path] = (tmp_path / "logs").iterdir()
    assert path.name == "listen-tele-gram.jsonl"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_log_files_of_one_kind_stay_within_their_bound_whoever_writes(tmp_path: Path) -> None:
    writers = [LogFile(tmp_path, "work", limit=2000) for _ in range(3)]
    for number in range(300):
        writers[number % 3].write(line(number % 60, event=f"n{number}"))
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes.keys() == {"work.jsonl", "work.jsonl.1"}
    assert all(size <= 3 * 2000 + 1000 for size in sizes.values())
    assert "n299" in (tmp_path / "work.jsonl").read_text() + (tmp_path / "work.jsonl.1").read_text()


def test_a_full_disk_costs_the_line_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = LogFile(tmp_path, "work")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    file.write(line(1))


def test_a_directory_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"LOG_DIR=.*file/logs cannot be written to"):
        LogFile(tmp_path / "file/logs", "work")


def test_lines_of_all_processes_come_in_the_order_of_time(tmp_path: Path, files: tuple[LogFile, LogFile]) -> None:
    receive, work = files
    receive.write(line(1, event="a"))
    work.write(line(2, event="b"))
    work.write(line(4, event="d"))
    receive.write(line(3, event="c"))
    assert events(LogReader(tmp_path, LogQuery()).last(10)) == ["a", "b", "c", "d"]
    assert events(LogReader(tmp_path, LogQuery()).last(2)) == ["c", "d"]
    assert events(LogReader(tmp_path, LogQuery(level="error")).last(2)) == []


def test_a_conversation_brings_the_lines_of_its_messages(tmp_path: Path, files: tuple[LogFile, LogFile]) -> None:
    receive, work = files
    work.write(line(3, event="delivered", message="in_1"))  # a reply's line names its message only
    work.write(line(4, event="delivered", message="in_2"))
    receive.write(line(1, event="accepted", message="in_1", key=KEY))
    receive.write(line(1, event="accepted", message="in_2", key=KEY + "1"))
    receive.write(line(2, event=f"says {KEY}", note=KEY))
    assert events(LogReader(tmp_path, LogQuery(keys=(KEY,))).last(10)) == ["accepted", "delivered"]
    assert events(LogReader(tmp_path, LogQuery(message="in_2")).last(10)) == ["accepted", "delivered"]


def test_a_follower_gets_every_line_once_while_files_are_moved(tmp_path: Path) -> None:
    file = LogFile(tmp_path, "work", limit=400)
    file.write(line(0, event="first"))
    reader = LogReader(tmp_path, LogQuery())
    assert events(reader.last(10)) == ["first"]
    heard = []
    for number in range(20):
        file.write(line(number, event=f"n{number}"))
        heard += events(reader.more())
    late = LogFile(tmp_path, "listen telegram")
    late.write(line(30, event="new process"))
    heard += events(reader.more())
    assert heard == [*(f"n{number}" for number in range(20)), "new process"]
    reader.close()


def test_a_file_that_is_moved_away_while_it_is_looked_for_is_no_error(tmp_path: Path) -> None:
    (tmp_path / f"gone{SUFFIX}").symlink_to("nowhere")  # listed, and not there any more
    LogFile(tmp_path, "work").write(line(1, event="there"))
    reader = LogReader(tmp_path, LogQuery())
    assert events(reader.last(10)) == ["there"] and reader.more() == []
    reader.close()


def test_what_is_no_log_line_is_passed_over(tmp_path: Path, files: tuple[LogFile, LogFile]) -> None:
    _, work = files
    for text in ('{"event":"half', "[1]", '{"event":"x","level":"info","timestamp":"soon"}', line(1, event="good")):
        work.write(text)
    assert events(LogReader(tmp_path, LogQuery()).last(10)) == ["good"]


def test_no_log_files_is_said_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="`keyturn up` writes them"):
        LogReader(tmp_path, LogQuery()).last(1)
