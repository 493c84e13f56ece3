"""Moving in and out: what an older gateway kept goes on in Keyturn, once, and can be had back."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest

from keyturn.importing.conversation import GatewayReader, OldConversation
from keyturn.importing.hermes.home import HermesHome
from keyturn.importing.nanobot.workspace import NanobotWorkspace
from keyturn.importing.report import Report
from keyturn.importing.write import move_in
from shared.agent.turn import Result, Turn
from shared.clock import now_ms
from shared.codec import message_id
from shared.door import accept
from shared.errors import Unavailable
from shared.messages import Inbound, Source
from shared.pipeline import Pipeline
from shared.reading.audit import audit_log
from shared.reading.export import export_all, json_line
from shared.routing import Sharing
from shared.store import Store
from tests.flow.test_cli import Cli, cli, environment, lone_cli
from tests.store.books import contents
from tests.support.legal import is_legal
from tests.support.older import AT, Hermes, Nanobot, origin, said
from tests.support.pipe import Rig
from workers.agents.functions import FunctionAgent

__all__ = ["cli", "environment", "lone_cli"]

KEY = "agent:main:telegram:dm:11"


def hermes_home(home: Path) -> HermesHome:
    return HermesHome(home, Sharing())


def workspace(path: Path) -> NanobotWorkspace:
    return NanobotWorkspace(path, Sharing())


async def moved(pipe: Pipeline, reader: GatewayReader, **options: Any) -> Report:
    return await move_in(reader, pipe.store.database, **options)


async def say(rig: Rig, text: str, chat: int = 11) -> None:
    """The next message of a chat, and its turn."""
    event_id = f"{text}-{now_ms()}"
    source = Source("telegram", str(chat), user=str(chat), user_name="Ann")
    inbound = Inbound(message_id("telegram", "", event_id), event_id, source, text, received_at=now_ms())
    await accept(rig.pipe, inbound)
    await rig.run_turns(f"agent:main:telegram:dm:{chat}")


async def exported(store: Store) -> list[dict[str, Any]]:
    return [json.loads(json_line(item)) async for item in export_all(store)]


async def test_an_imported_conversation_goes_on_with_the_next_message(pipe: Pipeline, rig: Rig, tmp_path: Path) -> None:
    hermes = Hermes(tmp_path / "home")
    hermes.session("before", said("long ago"), ended_at=AT + 9, end_reason="compression")
    assert hermes.talk(11, "s", "I am Ann", "hello Ann", title="Names", parent_session_id="before") == KEY
    report = await moved(pipe, hermes_home(hermes.write_index()))
    assert (report.outcomes["imported"], report.rows, report.skipped, report.notes) == (2, 3, [], [])

    seen: list[tuple[str, ...]] = []

    class Looking(FunctionAgent):
        async def answer(self, turn: Turn) -> Result:
            seen.append(tuple(entry.text for entry in turn.history))
            return await super().answer(turn)

    rig.agent = Looking(lambda text: f"echo: {text}")
    await say(rig, "who am I?")
    assert seen == [("I am Ann", "hello Ann")]
    assert await rig.transcript(KEY) == ["I am Ann", "hello Ann", "who am I?", "echo: who am I?"]
    session = await pipe.store.sessions.find(KEY)
    assert session is not None and (session["title"], session["version"]) == ("Names", 2)
    parent = await pipe.store.sessions.find(session["parent_id"])
    assert parent is not None and (parent["end_reason"], parent["message_count"]) == ("compression", 1)


async def test_a_second_run_writes_nothing(pipe: Pipeline, tmp_path: Path) -> None:
    hermes = Hermes(tmp_path / "home")
    hermes.talk(11, "s", "a", "b")
    home = hermes.write_index()
    nanobot = Nanobot(tmp_path / "workspace")
    nanobot.session("telegram:12", said("a"), metadata={"title": "T"})
    await moved(pipe, hermes_home(home))
    await moved(pipe, workspace(nanobot.workspace))
    before = await contents(pipe.store)
    for reader in (hermes_home(home), workspace(nanobot.workspace)):
        report = await moved(pipe, reader)
        assert (report.outcomes, report.rows) == ({"unchanged": 1}, 0)
    assert await contents(pipe.store) == before


async def test_a_session_that_went_on_here_is_left_as_it_is(pipe: Pipeline, rig: Rig, tmp_path: Path) -> None:
    hermes = Hermes(tmp_path / "home")
    hermes.talk(11, "s", "a", "b")
    await moved(pipe, hermes_home(hermes.write_index()))
    await say(rig, "c")
    assert hermes.database is not None
    hermes.database.execute("INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', 'd', 9)")
    report = await moved(pipe, hermes_home(hermes.write_index()))
    assert [line["reason"] for line in report.left] == ["moved on"]
    assert await rig.transcript(KEY) == ["a", "b", "c", "echo: c"]


async def test_a_key_that_talks_here_already_keeps_its_conversation(pipe: Pipeline, rig: Rig, tmp_path: Path) -> None:
    await say(rig, "first")
    hermes = Hermes(tmp_path / "home")
    hermes.talk(11, "s", "a", "b")
    report = await moved(pipe, hermes_home(hermes.write_index()))
    assert report.outcomes["imported"] == 1
    assert [note["note"] for note in report.notes] == ["its key talks to another conversation here"]
    await say(rig, "second")
    assert await rig.transcript(KEY) == ["first", "echo: first", "second", "echo: second"]


async def test_mail_that_waits_during_the_import_is_answered_as_if_there_were_none(
    pipe: Pipeline, rig: Rig, tmp_path: Path
) -> None:
    source = Source("telegram", "11", user="11")
    await accept(pipe, Inbound(message_id("telegram", "", "1"), "1", source, "waiting", received_at=now_ms()))
    hermes = Hermes(tmp_path / "home")
    hermes.talk(11, "s", "a")
    report = await moved(pipe, hermes_home(hermes.write_index()))
    assert len(report.notes) == 1
    await rig.run_turns(KEY)
    assert await rig.transcript(KEY) == ["waiting", "echo: waiting"]


async def test_what_was_said_there_since_the_last_import_is_added(pipe: Pipeline, rig: Rig, tmp_path: Path) -> None:
    nanobot = Nanobot(tmp_path / "workspace")
    nanobot.session("telegram:11", said("a", "b"))
    await moved(pipe, workspace(nanobot.workspace))
    nanobot.session("telegram:11", said("a", "b", "c", "d"))
    report = await moved(pipe, workspace(nanobot.workspace))
    assert (report.outcomes, report.rows) == ({"grown": 1}, 2)
    assert await rig.transcript(KEY) == ["a", "b", "c", "d"]
    nanobot.session("telegram:11", said("another past"))
    report = await moved(pipe, workspace(nanobot.workspace))
    assert [line["reason"] for line in report.left] == ["differs"]
    assert await rig.transcript(KEY) == ["a", "b", "c", "d"]


async def test_what_was_undone_there_since_the_last_import_is_no_longer_shown(
    pipe: Pipeline, rig: Rig, tmp_path: Path
) -> None:
    hermes = Hermes(tmp_path / "home")
    hermes.talk(11, "s", "a", "b", "c", "wrong")
    await moved(pipe, hermes_home(hermes.write_index()))
    assert hermes.database is not None
    hermes.database.execute("UPDATE messages SET active = 0 WHERE content IN ('c', 'wrong')")
    for role, text in (("user", "c"), ("assistant", "right")):
        hermes.database.execute(
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', ?, ?, ?)", [role, text, AT + 9]
        )
    report = await moved(pipe, hermes_home(hermes.write_index()))
    assert report.outcomes == {"grown": 1}
    session, _ = await pipe.store.transcript.load(KEY, "")
    assert [entry.text for entry in session.history] == ["a", "b", "c", "right"]


async def test_a_conversation_begun_there_since_the_last_import_is_the_one_that_goes_on(
    pipe: Pipeline, rig: Rig, tmp_path: Path
) -> None:
    hermes = Hermes(tmp_path / "home")
    hermes.talk(11, "old", "a")
    await moved(pipe, hermes_home(hermes.write_index()))
    hermes.talk(11, "new", "b", parent_session_id="old")
    await moved(pipe, hermes_home(hermes.write_index()))
    await say(rig, "c")
    assert await rig.transcript(KEY) == ["b", "c", "echo: c"]


async def test_an_import_that_was_stopped_in_a_long_conversation_is_continued(
    pipe: Pipeline, rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keyturn.importing.write.AT_A_TIME", 2)
    nanobot = Nanobot(tmp_path / "workspace")
    nanobot.session("telegram:11", said("a", "b", "c", "d", "e"), metadata={"title": "Letters"})
    write, written = pipe.store.database.write, 0

    async def stopped(*steps: Any) -> Any:
        nonlocal written
        written += 1
        if written == 3:
            raise Unavailable("the database is away")
        return await write(*steps)

    with monkeypatch.context() as away:
        away.setattr(pipe.store.database, "write", stopped)
        with pytest.raises(Unavailable):
            await moved(pipe, workspace(nanobot.workspace))
    assert await rig.transcript(KEY) == []  # nobody talks to half a conversation
    report = await moved(pipe, workspace(nanobot.workspace))
    assert (report.outcomes, report.rows) == ({"grown": 1}, 1)
    await say(rig, "f")
    assert await rig.transcript(KEY) == ["a", "b", "c", "d", "e", "f", "echo: f"]


async def test_two_imports_at_once_bring_in_one_copy(pipe: Pipeline, rig: Rig, tmp_path: Path) -> None:
    hermes = Hermes(tmp_path / "home")
    for chat in range(20):
        hermes.talk(chat + 1, f"s{chat}", "a", "b")
    home = hermes.write_index()
    reports = await asyncio.gather(*(moved(pipe, hermes_home(home)) for _ in range(3)))
    assert sum(report.outcomes["imported"] for report in reports) == 20
    found = await contents(pipe.store)
    assert (len(found["sessions"]), len(found["messages"]), len(found["turns"])) == (20, 40, 20)


async def test_a_dry_run_says_what_would_be_done_and_writes_nothing(pipe: Pipeline, tmp_path: Path) -> None:
    hermes = Hermes(tmp_path / "home")
    hermes.talk(11, "s", "a", "b")
    report = await moved(pipe, hermes_home(hermes.write_index()), dry_run=True)
    assert (report.outcomes, report.rows) == ({"imported": 1}, 2)
    assert all(rows == [] for rows in (await contents(pipe.store)).values())


async def test_a_summary_and_its_offset_and_the_goal_are_facts_of_the_session(pipe: Pipeline, tmp_path: Path) -> None:
    nanobot = Nanobot(tmp_path / "workspace")
    metadata = {"_last_summary": {"text": "they met"}, "goal_state": {"status": "active", "objective": "ship"}}
    nanobot.session("telegram:11", said(*"abcdefghijkl"), last_consolidated=2, metadata=metadata)
    await moved(pipe, workspace(nanobot.workspace))
    session, _ = await pipe.store.transcript.load(KEY, "")
    assert [entry.text for entry in session.history] == list("cdefghijkl")
    assert {**session.facts, "goal": json.loads(session.facts["goal"])} == {
        "summary": "they met",
        "consolidated": "2",
        "goal": {"status": "active", "objective": "ship"},
    }


async def test_text_that_no_database_keeps_is_mended(pipe: Pipeline, rig: Rig, tmp_path: Path) -> None:
    nanobot = Nanobot(tmp_path / "workspace")
    calls = [{"id": "c\ud800", "function": {"name": "f", "arguments": {"x": "\x00"}}}]
    nanobot.session("telegram:11", [{"role": "assistant", "content": "half \ud83d and \x00", "tool_calls": calls}])
    await moved(pipe, workspace(nanobot.workspace))
    assert await rig.transcript(KEY) == ["half \N{REPLACEMENT CHARACTER} and \N{REPLACEMENT CHARACTER}"]


# As many as people have.


def made_up_home(home: Path, sessions: int) -> Path:
    """Every tenth session has a corrupt line, every hundredth an unknown platform, some are in one store only."""
    hermes = Hermes(home)
    for n in range(sessions):
        words = [f"{n}: word {m}" for m in range(2 + n % 5)]
        if n % 100 == 99:
            hermes.entry(f"agent:main:fax:dm:{n}", f"s{n}", origin(n, platform="fax"))
            hermes.session(f"s{n}", said(*words), source="fax")
            continue
        hermes.entry(f"agent:main:telegram:dm:{n}", f"s{n}", origin(n, user_id=str(n)))
        if n % 3:
            hermes.session(f"s{n}", said(*words), user_id=str(n), title=f"Talk {n}")
        if n % 3 != 1:
            hermes.lines(f"s{n}", [*said(*words), *(['{"role": "us'] if n % 10 == 0 else [])])
    return hermes.write_index()


def made_up_workspace(path: Path, sessions: int) -> Path:
    nanobot = Nanobot(path)
    for n in range(sessions):
        garbage = ["{"] if n % 10 == 0 else []
        nanobot.session(f"slack:D{n}", [*said(*(f"{n}: word {m}" for m in range(4))), *garbage])
    return path


async def test_two_thousand_sessions_of_hermes_and_five_hundred_of_nanobot_move_in_once(
    pipe: Pipeline, rig: Rig, tmp_path: Path
) -> None:
    home, path = made_up_home(tmp_path / "home", 2000), made_up_workspace(tmp_path / "workspace", 500)
    told: list[int] = []
    first = await moved(pipe, hermes_home(home), advance=told.append)
    second = await moved(pipe, workspace(path))
    assert (first.found, first.outcomes["imported"], len(first.skipped)) == (2000, 1980, 20)
    assert {skipped.reason for skipped in first.skipped} == {"unknown platform 'fax'"}
    assert first.corrupt_lines == sum(1 for n in range(0, 2000, 10) if n % 3 != 1)
    assert told == sorted(told) and told[-1] == 2000
    assert (second.found, second.outcomes["imported"], second.corrupt_lines) == (500, 500, 50)
    rows = {name: len(found) for name, found in (await contents(pipe.store)).items()}
    assert (rows["sessions"], rows["routes"], rows["turns"]) == (2480, 2480, 2480)
    for reader in (hermes_home(home), workspace(path)):
        report = await moved(pipe, reader)
        assert set(report.outcomes) == {"unchanged"} and report.rows == 0
    assert {name: len(found) for name, found in (await contents(pipe.store)).items()} == rows
    await say(rig, "and on", chat=1000)
    assert (await rig.transcript("agent:main:telegram:dm:1000"))[-3:] == ["1000: word 1", "and on", "echo: and on"]


# And out again.


async def test_what_was_imported_is_what_is_exported(pipe: Pipeline, tmp_path: Path) -> None:
    hermes = Hermes(tmp_path / "home")
    call = [{"id": "c1", "function": {"name": "look", "arguments": "{}"}}]
    rows: list[dict[str, Any]] = [
        {"role": "user", "content": "undone", "active": 0},
        {"role": "user", "content": "look — 見て"},
        {"role": "assistant", "content": "", "tool_calls": json.dumps(call)},
        {"role": "tool", "content": "found", "tool_call_id": "c1", "tool_name": "look"},
        {"role": "assistant", "content": "there", "reasoning": "hm"},
    ]
    hermes.entry(KEY, "s", origin(11))
    hermes.session("s", rows, title="Looking")
    reader = hermes_home(hermes.write_index())
    [imported] = list(reader)
    await moved(pipe, reader)
    session, *messages = await exported(pipe.store)
    assert (session["type"], session["session_key"], session["title"]) == ("session", KEY, "Looking")
    assert session["current"] is True and session["created_at"] == "2026-01-01T00:00:00.000Z"
    assert session["message_count"] == len(messages) == 5
    told = [(line["role"], line["text"], line["data"], line["active"]) for line in messages]
    assert isinstance(imported, OldConversation)
    assert told == [(row.entry.role, row.entry.text, row.entry.data, row.active) for row in imported.rows]
    assert [line["n"] for line in messages] == [1, 2, 3, 4, 5]
    assert is_legal([row.entry for row in imported.rows if row.active])


async def test_an_export_never_reads_more_than_a_page(
    pipe: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.reading.export.SESSIONS", 2)
    monkeypatch.setattr("shared.reading.export.ROWS", 3)
    nanobot = Nanobot(tmp_path / "workspace")
    for n in range(5):
        nanobot.session(f"telegram:{n + 1}", said(*(f"{n} {m}" for m in range(2 * n))))
    await moved(pipe, workspace(nanobot.workspace))
    read, largest = pipe.store.database.read, 0

    async def watched(*steps: Any) -> Any:
        nonlocal largest
        found = await read(*steps)
        largest = max(largest, *(len(rows) for rows in found))
        return found

    monkeypatch.setattr(pipe.store.database, "read", watched)
    lines = await exported(pipe.store)
    assert largest == 3
    assert sum(line["type"] == "session" for line in lines) == 5
    assert sorted(line["text"] for line in lines if line["type"] == "message") == sorted(
        f"{n} {m}" for n in range(5) for m in range(2 * n)
    )


# As a person types it.


@pytest.fixture
def home(tmp_path: Path) -> Path:
    hermes = Hermes(tmp_path / "home")
    hermes.talk(11, "s", "a", "b")
    hermes.entry("agent:main:fax:dm:2", "f", origin(2, platform="fax"))
    return hermes.write_index()


async def test_keyturn_import_reports_what_it_did(cli: Cli, home: Path) -> None:
    printed = await cli("import", "hermes", str(home), "--dry-run", "--json")
    assert (printed.code, printed.json["dry_run"], printed.json["imported"]) == (0, True, 1)
    printed = await cli("import", "hermes", str(home))
    assert printed.code == 0 and "skipped 1: unknown platform 'fax'" in printed.out
    assert printed.err.splitlines() == ["2 of 2 sessions"]
    printed = await cli("import", "hermes", str(home), "--json")
    assert (printed.json["imported"], printed.json["unchanged"], printed.json["messages"]) == (0, 1, 0)
    assert printed.json["skipped_sessions"] == [{"ref": "agent:main:fax:dm:2", "reason": "unknown platform 'fax'"}]


async def test_an_import_is_in_the_audit_log_and_its_dry_run_is_not(pipe: Pipeline, cli: Cli, home: Path) -> None:
    await cli("import", "hermes", str(home), "--dry-run")
    await cli("import", "hermes", str(home))
    assert [(row.action, row.target, row.outcome) for row in await audit_log(pipe.store, 5)] == [
        ("import", "hermes", "done")
    ]


async def test_keyturn_import_refuses_what_is_no_gateways(cli: Cli, tmp_path: Path) -> None:
    for gateway in ("hermes", "nanobot"):
        (tmp_path / "nothing").mkdir(exist_ok=True)
        printed = await cli("import", gateway, str(tmp_path / "nothing"))
        assert printed.code == 1 and "Traceback" not in printed.err
    nanobot = Nanobot(tmp_path / "workspace")
    nanobot.path("telegram:1").mkdir()
    printed = await cli("import", "nanobot", str(tmp_path / "workspace"))
    assert printed.code == 1 and "Is a directory" in printed.err


async def test_an_import_needs_no_redis(lone_cli: Cli, environment: pytest.MonkeyPatch, home: Path) -> None:
    assert (await lone_cli("migrate")).code == 0
    assert (await lone_cli("import", "hermes", str(home), "--json")).json["imported"] == 1
    assert (await lone_cli("sessions", "export", "--all")).out.count("\n") == 3


async def test_keyturn_sessions_export_prints_or_writes_json_lines(cli: Cli, home: Path, tmp_path: Path) -> None:
    await cli("import", "hermes", str(home))
    printed = await cli("sessions", "export", KEY)
    lines = [json.loads(line) for line in printed.out.splitlines()]
    assert [line.get("text", line["type"]) for line in lines] == ["session", "a", "b"]
    out = tmp_path / "out.jsonl"
    told = await cli("sessions", "export", "--all", "--out", str(out))
    assert told.out == "1 sessions, 2 messages\n" and out.read_text() == printed.out
    assert out.stat().st_mode & 0o077 == 0
    again = await cli("sessions", "export", "--all", "--out", str(out))
    assert again.code == 1 and "File exists" in again.err
    assert (await cli("sessions", "export")).code == 2
    assert (await cli("sessions", "export", "ses_none")).code == 1


async def test_N50_keyturn_sessions_delete_asks_and_then_the_key_begins_an_empty_one(
    cli: Cli, home: Path, pipe: Pipeline, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cli("import", "hermes", str(home))
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    assert (await cli("sessions", "delete", KEY)).code == 1
    assert await rig.transcript(KEY) == ["a", "b"]
    assert (await cli("sessions", "delete", KEY, "--yes")).code == 0
    found = await contents(pipe.store)
    assert (found["sessions"], found["messages"]) == ([], [])
    await say(rig, "c")
    assert await rig.transcript(KEY) == ["c", "echo: c"]
    assert (await cli("import", "hermes", str(home), "--json")).json["moved_on"] == 1


async def test_a_session_that_went_on_meanwhile_is_not_deleted(pipe: Pipeline, rig: Rig) -> None:
    await say(rig, "a")
    session = await pipe.store.sessions.find(KEY)
    assert session is not None
    await say(rig, "b")
    assert not await pipe.store.delete(session["id"], session["version"])
    assert await rig.transcript(KEY) == ["a", "echo: a", "b", "echo: b"]
