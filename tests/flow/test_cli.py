"""The commands that look and repair, as a person types them."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import io
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
import redis

from keyturn import cli as keyturn
from shared import keys
from shared.codec import Serializer
from shared.door import accept
from shared.embedded import child
from shared.errors import Superseded, Transient
from shared.mail import TakeNotes, encode_mail
from shared.messages import Part, Receipt
from shared.platforms.facts import Idempotency
from shared.reading.audit import audit_log
from shared.settings import Settings
from shared.store.change import Commit, Proof
from tests.conftest import WEBHOOK_SECRET
from tests.store.books import contents
from tests.store.test_pairing import ann as a_person
from tests.store.test_pairing import ask as ask_for_code
from tests.support.pipe import Rig, an_inbound, key_of
from tests.support.redis_roles import playing, role_of_command
from workers.agents.functions import FunctionAgent
from workers.delivery.deliver import Deliveries, deliver_parts
from workers.process.rq_worker import KeyturnWorker
from workers.turn.open import Opened, open_mail

DESTINATION = "to:webhook:c1"


@dataclass(frozen=True, slots=True)
class Printed:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return orjson.loads(self.out)


Cli = Callable[..., Awaitable[Printed]]


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Where a command runs: a directory of its own, and what the environment says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("KEYTURN_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("KEYTURN_WEBHOOK__SECRETS", WEBHOOK_SECRET)
    return monkeypatch


@pytest.fixture
def lone_cli(environment: pytest.MonkeyPatch) -> Cli:
    """Runs a command in a thread, as if its output were piped. No server is named."""

    def run(*args: str) -> Printed:
        out, err = io.StringIO(), io.StringIO()
        code: object = 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                with playing(role_of_command(args[0])):
                    keyturn.main(args)
            except SystemExit as exit:
                code = exit.code
        assert isinstance(code, int | None)
        return Printed(code or 0, out.getvalue(), err.getvalue())

    async def run_in_thread(*args: str) -> Printed:
        return await asyncio.to_thread(run, *args)

    return run_in_thread


@pytest.fixture
def cli(lone_cli: Cli, environment: pytest.MonkeyPatch, settings: Settings) -> Cli:
    """The same, with the servers of the test."""
    assert settings.redis_url is not None
    environment.setenv("KEYTURN_REDIS_URL", settings.redis_url.get_secret_value())
    environment.setenv("KEYTURN_DATABASE_URL", settings.database)
    environment.setenv("KEYTURN_PARTITIONS", str(settings.partitions))
    return lone_cli


class Refusing:
    """A platform that refuses until it is told to accept."""

    idempotency = Idempotency.NATIVE

    def __init__(self) -> None:
        self.accepts = False
        self.sent: list[Part] = []

    async def send(self, part: Part) -> Receipt:
        if not self.accepts:
            raise Transient("HTTP 500")
        self.sent.append(part)
        return Receipt("m1")


async def deliver(rig: Rig, sender: Refusing) -> None:
    _, lease = await rig.start(rig.pipe.deliveries, DESTINATION)
    assert lease is not None
    await deliver_parts(lease, Deliveries(rig.pipe, {"webhook": sender}))


async def bury_inbound(rig: Rig, text: str = "poison") -> str:
    """A message whose every attempt fails; afterwards the agent answers it."""
    healthy = rig.agent

    async def fails(_: str) -> str:
        raise RuntimeError("no")

    rig.agent = FunctionAgent(fails)
    accepted = await rig.accept(text)
    for _ in range(rig.pipe.settings.max_attempts):
        await rig.expire_lease(rig.pipe.turns, key_of())
        await rig.pipe.turns.recover(key_of())
        await rig.run_turns()
    rig.agent = healthy
    return accepted.id


async def bury_reply(rig: Rig, sender: Refusing) -> None:
    """An answer that no attempt could deliver."""
    await rig.accept("hello")
    await rig.run_turns()
    for _ in range(rig.pipe.settings.delivery_max_attempts):
        await rig.expire_lease(rig.pipe.deliveries, DESTINATION)
        await rig.pipe.deliveries.recover(DESTINATION)
        await deliver(rig, sender)


# -- messages


async def test_a_trace_shows_each_stage_with_its_time(rig: Rig, cli: Cli) -> None:
    accepted = await rig.accept("hello", event_id="evt_traced")
    await rig.run_turns()
    sender = Refusing()
    sender.accepts = True
    await deliver(rig, sender)
    by_id, by_event = await cli("messages", "trace", accepted.id), await cli("messages", "trace", "evt_traced")
    assert by_id == by_event and by_id.code == 0
    stages = [line.split()[0] for line in by_id.out.splitlines() if line.endswith(" ms")]
    assert stages == ["claimed", "started", "committed", "sending", "sent"]
    assert accepted.id in by_id.out and key_of() in by_id.out and "answered" in by_id.out and DESTINATION in by_id.out
    traced = (await cli("messages", "trace", accepted.id, "--json")).json
    assert [stage["stage"] for stage in traced["stages"]] == ["received", *stages]
    assert list(traced["timings"]) == ["received", *stages]
    assert traced["worker"] == "test" and traced["now"] == {}
    assert [(part["state"], part["receipt"]) for part in traced["parts"]] == [("sent", "m1")]


async def test_a_trace_of_waiting_mail_says_what_redis_knows_of_its_key(rig: Rig, cli: Cli) -> None:
    accepted = await rig.accept("hello")

    async def now() -> dict[str, Any]:
        return dict((await cli("messages", "trace", accepted.id, "--json")).json["now"]["turns"])

    awake = await now()
    assert (awake["state"], awake["waiting"], awake["until"]) == ("awake", 1, None)
    lease = await rig.lease()
    leased = await now()
    assert (leased["state"], leased["worker"], leased["attempts"]) == ("leased", "test", 1)
    await lease.release(delay=timedelta(hours=1), spent=True)
    delayed = await now()
    assert delayed["state"] == "delayed" and 0 < delayed["left_ms"] <= 3_600_000
    assert "delayed, 1 waiting" in (await cli("messages", "trace", accepted.id)).out


async def test_a_trace_of_an_unsent_reply_says_how_its_destination_stands(rig: Rig, cli: Cli) -> None:
    accepted = await rig.accept("hello")
    await rig.run_turns()
    traced = (await cli("messages", "trace", accepted.id, "--json")).json
    assert list(traced["now"]) == ["deliveries"]
    assert (traced["now"]["deliveries"]["key"], traced["now"]["deliveries"]["state"]) == (DESTINATION, "awake")


async def test_a_trace_needs_no_redis(rig: Rig, cli: Cli, environment: pytest.MonkeyPatch) -> None:
    accepted = await rig.accept("hello")
    environment.setenv("KEYTURN_REDIS_URL", f"redis://127.0.0.1:{child.free_port()}/0")
    printed = await cli("messages", "trace", accepted.id)
    assert printed.code == 0 and "pending" in printed.out and "Redis: ConnectionError" in printed.out


# -- keys


async def test_keys_list_shows_the_keys_that_are_not_idle(rig: Rig, cli: Cli) -> None:
    assert (await cli("keys", "list")).out == "every key is idle\n"
    await rig.accept("one", chat="awake")
    await rig.accept("two", chat="awake")
    await rig.accept("done", chat="done")
    while (lease := (await rig.start(rig.pipe.turns, key_of("done")))[1]) is None or lease.key != key_of("done"):
        assert lease is not None
        await lease.release(spent=False)
    await lease.acknowledge([waiting.seq for waiting in lease.mail], limit=1)
    states = {state["key"]: state for state in (await cli("keys", "list", "--json")).json}
    assert list(states) == [key_of("awake")]
    assert (states[key_of("awake")]["lane"], states[key_of("awake")]["waiting"]) == ("turns", 2)
    printed = await cli("keys", "list")
    assert key_of("awake") in printed.out and "\x1b" not in printed.out


async def test_keys_show_tells_lane_journal_and_waiting_mail(rig: Rig, cli: Cli) -> None:
    first, second = await rig.accept("one"), await rig.accept("two")
    shown = (await cli("keys", "show", key_of(), "--json")).json
    assert [mail["id"] for mail in shown["mail"]] == [first.id, second.id]
    assert (shown["state"], shown["journal"]["pending"], shown["journal"]["done_seq"]) == ("awake", 2, 0)
    assert second.id in (await cli("keys", "show", key_of())).out
    await rig.run_turns()
    assert (await cli("keys", "show", key_of(), "--json")).json["state"] == "idle"
    shown = (await cli("keys", "show", DESTINATION, "--json")).json
    assert (shown["lane"], shown["waiting"], len(shown["journal"]["unsent"])) == ("deliveries", 2, 2)


async def test_keys_show_says_what_each_piece_of_mail_is_about(rig: Rig, cli: Cli) -> None:
    accepted = await rig.accept("hello")
    await rig.pipe.turns.put(key_of(), 0, encode_mail(TakeNotes("ses_1")))
    shown = (await cli("keys", "show", key_of(), "--json")).json
    assert [mail["id"] for mail in shown["mail"]] == [accepted.id, "notes of ses_1"]


async def test_a_released_key_goes_on_at_once_and_its_old_holder_commits_nothing(rig: Rig, cli: Cli) -> None:
    await rig.accept("hello")
    stale = await rig.lease()
    opened = await open_mail(stale.key, stale.mail[0], None, rig.pipe.store)
    printed = await cli("keys", "release", key_of())
    assert (printed.code, printed.out) == (0, f"{key_of()} was leased, now awake\n")
    await rig.run_turns()
    assert isinstance(opened, Opened)
    proof = Proof("turn_stale", "zombie", 1, 0, 0)
    with pytest.raises(Superseded):
        await rig.pipe.store.commit(Commit(opened.session, stale.key, proof, mail=(opened.mail,)))
    assert await rig.transcript() == ["hello", "echo: hello"]
    assert [name for name in await rig.residue() if name.startswith("kt:turns")] == []


@pytest.mark.parametrize("do", ["release", "stop"])
async def test_what_is_no_key_is_told_from_a_key_that_is_idle(rig: Rig, cli: Cli, do: str) -> None:
    idle, no_key = await cli("keys", do, key_of()), await cli("keys", do, "nope")
    assert idle.code and f"{key_of()} is idle: there is nothing to {do}" in idle.err
    assert no_key.code and "nope is no key" in no_key.err


async def test_releasing_a_key_spends_no_attempt(rig: Rig, cli: Cli) -> None:
    await rig.accept("hello")
    for _ in range(rig.pipe.settings.max_attempts + 1):
        await rig.lease()
        assert (await cli("keys", "release", key_of(), "--json")).json["was"] == "leased"
    await rig.run_turns()
    assert await rig.transcript() == ["hello", "echo: hello"]


async def test_releasing_a_delayed_key_ends_its_delay(rig: Rig, cli: Cli) -> None:
    await rig.accept("hello")
    lease = await rig.lease()
    await lease.release(delay=timedelta(hours=1), spent=True)
    assert (await cli("keys", "release", key_of(), "--json")).json["was"] == "delayed"
    await rig.run_turns()
    assert await rig.transcript() == ["hello", "echo: hello"]


# -- dead letters


async def test_a_replayed_inbound_runs_once_more_at_the_end_of_its_line(rig: Rig, cli: Cli) -> None:
    id = await bury_inbound(rig)
    await rig.accept("in between")
    [letter] = (await cli("dead", "list", "--json")).json
    assert (letter["kind"], letter["ref"], letter["session_key"]) == ("inbound", id, key_of())
    replayed = await cli("dead", "replay", str(letter["id"]), "--json")
    await rig.run_turns()
    assert await rig.transcript() == ["in between", "echo: in between", "poison", "echo: poison"]
    traced = (await cli("messages", "trace", replayed.json["message"], "--json")).json
    assert traced["state"] == "answered" and traced["event_id"].endswith(f"#replay-{letter['id']}")
    assert (await cli("dead", "list")).out == "no open dead letters\n"
    assert len((await cli("dead", "list", "--state", "replayed", "--json")).json) == 1


async def test_an_edited_letter_runs_as_a_new_message_and_keeps_its_own_text(rig: Rig, cli: Cli) -> None:
    await bury_inbound(rig)
    [letter] = (await cli("dead", "list", "--json")).json
    assert (await cli("dead", "replay", str(letter["id"]), "--text", "  ")).code == 1
    assert "replayed_as" not in (await cli("dead", "show", str(letter["id"]))).out
    replayed = await cli("dead", "replay", str(letter["id"]), "--text", "a better question", "--json")
    assert replayed.code == 0, replayed.err
    rig.agent = FunctionAgent(lambda text: f"echo: {text}")
    await rig.run_turns()
    assert (await rig.transcript())[-2:] == ["a better question", "echo: a better question"]
    shown = (await cli("dead", "show", str(letter["id"]), "--json")).json
    assert shown["payload"]["inbound"]["text"] == "poison" and shown["state"] == "replayed"
    assert shown["replayed_as"] == replayed.json["message"]
    assert (await cli("dead", "replay", str(letter["id"]), "--text", "again")).code == 1


@pytest.mark.parametrize(
    ("command", "action", "target"),
    [
        (("keys", "release", key_of()), "release key", key_of()),
        (("keys", "stop", key_of()), "stop key", key_of()),
        (("keys", "pause", "all"), "pause", "all"),
        (("keys", "resume", "all"), "resume", "all"),
        (("dead", "replay", "7"), "replay dead letter", "7"),
        (("dead", "replay", "7", "--text", "again"), "edit and replay dead letter", "7"),
        (("dead", "drop", "7"), "drop dead letter", "7"),
        (("deliveries", "release", DESTINATION), "release chat", DESTINATION),
        (("deliveries", "drop", DESTINATION, "--yes"), "drop replies", DESTINATION),
        (("pair", "approve", "telegram", "ABCD1234"), "approve pairing", "telegram"),
        (("pair", "revoke", "telegram", "42"), "revoke pairing", "telegram"),
        (("questions", "withdraw", "ask_1_000"), "withdraw question", "ask_1_000"),
        (("reload",), "reload settings", "receivers and listeners"),
        (("schedule", "pause", "sch_1"), "pause schedule", "sch_1"),
        (("schedule", "remove", "sch_1"), "remove schedule", "sch_1"),
        (("send", "webhook:c1", "hello", "--also", "local"), "send", "to:webhook:c1, local"),
        (("sessions", "forget", "--user", "telegram:42", "--yes"), "forget person", "telegram"),
    ],
)
async def test_a_command_that_changes_something_is_in_the_audit_log_also_when_it_fails(
    rig: Rig, cli: Cli, command: tuple[str, ...], action: str, target: str
) -> None:
    """A person who is to be forgotten is not named there."""
    said = await cli(*command)
    [row] = await audit_log(rig.pipe.store, 5)
    assert (row.who, row.role, row.action, row.target) == (getpass.getuser(), "cli", action, target)
    assert (row.outcome == "done") == (said.code == 0) and row.outcome != "begun"


async def test_keys_are_paused_listed_and_resumed_and_the_audit_log_says_who(rig: Rig, cli: Cli) -> None:
    assert (await cli("keys", "pauses")).out == "nothing is paused\n"
    paused = await cli("keys", "pause", "platform:webhook")
    assert (paused.code, paused.out) == (0, "platform:webhook is paused.\n")
    await rig.accept("hello")
    await rig.start(rig.pipe.turns, key_of())
    [state] = (await cli("keys", "list", "--json")).json
    assert (state["state"], state["paused"]) == ("paused", "platform:webhook")
    [held] = (await cli("keys", "pauses", "--json")).json
    assert (held["scope"], held["who"], held["conversations"]) == ("platform:webhook", getpass.getuser(), 1)
    assert "1 conversation" in (await cli("keys", "pauses")).out
    assert (await cli("keys", "release", key_of())).code == 1
    assert (await cli("keys", "resume", "platform:webhook")).out == "platform:webhook goes on: 1 key woken.\n"
    log = [(row.who, row.role, row.action, row.target, row.outcome) for row in await audit_log(rig.pipe.store, 5)]
    who = getpass.getuser()
    assert [log[0], log[2]] == [(who, "cli", action, "platform:webhook", "done") for action in ("resume", "pause")]
    refused = await cli("keys", "pause", "everything")
    assert refused.code == 1 and "cannot be paused: write all, lane:turns" in refused.err
    refused = await cli("keys", "pause", "platform:webhok")
    assert refused.code == 1 and "there is no platform 'webhok'; take one of api, " in refused.err


async def test_a_letter_replayed_twice_runs_once(rig: Rig, cli: Cli) -> None:
    await bury_inbound(rig)
    [letter] = (await cli("dead", "list", "--json")).json
    assert (await cli("dead", "replay", str(letter["id"]))).code == 0
    again = await cli("dead", "replay", str(letter["id"]))
    assert (again.code, again.out) == (
        1,
        "",
    ) and again.err == f"keyturn: dead letter {letter['id']} was replayed before\n"
    await rig.run_turns()
    assert await rig.transcript() == ["poison", "echo: poison"]


async def test_a_replay_that_died_before_it_closed_the_letter_may_be_repeated(
    rig: Rig, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dies(*_: object) -> bool:
        raise Superseded("the process dies here")

    await bury_inbound(rig)
    [letter] = (await cli("dead", "list", "--json")).json
    with monkeypatch.context() as patch:
        patch.setattr("shared.store.dead.DeadLetters.close", dies)
        assert (await cli("dead", "replay", str(letter["id"]))).code == 1
    assert (await cli("dead", "replay", str(letter["id"]))).code == 0
    await rig.run_turns()
    assert await rig.transcript() == ["poison", "echo: poison"]


async def test_a_replayed_reply_is_sent_again_with_the_same_key(rig: Rig, cli: Cli) -> None:
    sender = Refusing()
    await bury_reply(rig, sender)
    [letter] = (await cli("dead", "list", "--json")).json
    assert (letter["kind"], letter["reason"]) == ("reply", "unreachable")
    printed = await cli("dead", "replay", str(letter["id"]))
    assert (printed.code, printed.out) == (0, f"dead letter {letter['id']} is to be sent again to {DESTINATION}\n")
    sender.accepts = True
    await deliver(rig, sender)
    assert [part.text for part in sender.sent] == ["echo: hello"]
    assert (await cli("dead", "replay", str(letter["id"]))).code == 1
    assert await rig.pipe.store.outbox.open_parts(DESTINATION, 10) == []


async def test_a_reply_that_is_buried_again_becomes_a_letter_of_its_own(rig: Rig, cli: Cli) -> None:
    sender = Refusing()
    await bury_reply(rig, sender)
    [first] = (await cli("dead", "list", "--json")).json
    assert (await cli("dead", "replay", str(first["id"]))).code == 0
    for _ in range(rig.pipe.settings.delivery_max_attempts):
        await rig.expire_lease(rig.pipe.deliveries, DESTINATION)
        await rig.pipe.deliveries.recover(DESTINATION)
        await deliver(rig, sender)
    [second] = (await cli("dead", "list", "--json")).json
    assert second["id"] > first["id"]
    assert (await cli("dead", "replay", str(first["id"]))).code == 1
    assert await rig.pipe.store.outbox.open_parts(DESTINATION, 10) == []


async def test_what_was_never_understood_can_be_shown_and_dropped_but_not_replayed(rig: Rig, cli: Cli) -> None:
    await rig.pipe.store.dead.set_aside("request", "evt_9", None, "malformed", "no chat", "{not \x1b[31mjson")
    [letter] = (await cli("dead", "list", "--json")).json
    shown = await cli("dead", "show", str(letter["id"]))
    assert "not" in shown.out and "json" in shown.out and "\x1b" not in shown.out
    refused = await cli("dead", "replay", str(letter["id"]))
    assert refused.code == 1 and "can only be dropped" in refused.err and refused.err.count("\n") == 1
    assert (await cli("dead", "drop", str(letter["id"]))).code == 0
    assert (await cli("dead", "drop", str(letter["id"]))).code == 1
    assert (await cli("dead", "list", "--state", "dropped", "--json")).json[0]["ref"] == "evt_9"


async def test_an_inbound_that_could_not_be_read_is_replayed_once_this_version_can_read_it(
    rig: Rig, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbound = an_inbound("from the future")
    with monkeypatch.context() as patch:  # a newer receiver found the mailbox full
        patch.setattr("shared.mail.INBOUND_VERSION", 2)
        await rig.pipe.store.dead.refuse(inbound, key_of(), "full")
    [letter] = (await cli("dead", "list", "--json")).json
    assert (letter["ref"], letter["reason"]) == (inbound.id, "mailbox full")
    refused = await cli("dead", "replay", str(letter["id"]))
    assert (refused.code, refused.err.count("\n")) == (1, 1) and "wire version 2" in refused.err
    monkeypatch.setattr("shared.mail.INBOUND_VERSION", 2)
    assert (await cli("dead", "replay", str(letter["id"]))).code == 0
    await rig.run_turns()
    assert await rig.transcript() == ["from the future", "echo: from the future"]


async def test_a_dropped_reply_stays_buried(rig: Rig, cli: Cli) -> None:
    await bury_reply(rig, Refusing())
    [letter] = (await cli("dead", "list", "--json")).json
    assert (await cli("dead", "drop", str(letter["id"]))).code == 0
    assert (await cli("dead", "replay", str(letter["id"]))).code == 1
    assert await rig.pipe.store.dead.send_again(letter["id"], int(letter["ref"])) == (False, None)
    assert await rig.pipe.store.outbox.open_parts(DESTINATION, 10) == []


# -- sessions


async def test_sessions_are_listed_and_shown_by_key_or_id(rig: Rig, cli: Cli) -> None:
    assert (await cli("sessions", "list")).out == "no sessions\n"
    for text in ("one", "two"):
        await rig.accept(text)
    await rig.run_turns()
    [session] = (await cli("sessions", "list", "--json")).json
    assert (session["session_key"], session["message_count"], session["version"]) == (key_of(), 4, 2)
    listed = await cli("sessions", "list")
    assert session["id"] in listed.out and key_of() in listed.out
    by_key, by_id = await cli("sessions", "show", key_of()), await cli("sessions", "show", session["id"])
    assert by_key == by_id and by_key.out.index("echo: one") < by_key.out.index("echo: two")
    last = (await cli("sessions", "show", key_of(), "--limit", "1", "--json")).json
    assert [(m["n"], m["role"], m["text"]) for m in last["messages"]] == [(4, "assistant", "echo: two")]


async def test_what_a_stranger_wrote_reaches_the_terminal_as_text_only(rig: Rig, cli: Cli) -> None:
    await rig.accept("\x1b]0;owned\x07 \u202eevil [red]kept[/red] \x9b2J\nnext line")
    await rig.run_turns()
    unsafe = {"\x1b", "\x07", "\u202e", "\x9b"}
    printed = (await cli("sessions", "show", key_of())).out
    assert not set(printed) & unsafe
    for_a_program = await cli("sessions", "show", key_of(), "--json")
    assert not set(for_a_program.out) & unsafe
    assert "\u202eevil [red]kept[/red] \x9b2J\nnext line" in for_a_program.json["messages"][0]["text"]
    refused = await cli("messages", "trace", "evil \x1b[2J\u202e\x9b\x07")
    assert refused.code == 1 and "no message evil" in refused.err and not set(refused.err) & unsafe
    assert "[red]kept[/red]" in printed and "\n  next line" in printed


async def test_a_reply_that_was_not_sent_is_deleted_with_its_session_and_its_chat_goes_on(rig: Rig, cli: Cli) -> None:
    sender = Refusing()
    sender.accepts = True
    await rig.accept("forget this")
    await rig.run_turns()
    vacuum = ("--vacuum",) if rig.pipe.store.database.dialect == "sqlite" else ()
    assert (await cli("sessions", "delete", key_of(), "--yes", *vacuum)).code == 0
    await deliver(rig, sender)
    assert sender.sent == [] and await rig.residue() == []
    await rig.accept("and now")
    await rig.run_turns()
    await deliver(rig, sender)
    assert [part.text for part in sender.sent] == ["echo: and now"]


async def test_the_control_messages_of_a_deleted_conversation_are_deleted_with_it(rig: Rig, cli: Cli) -> None:
    for text in ("hello", "/status canary"):
        await rig.accept(text)
        await rig.run_turns()
    assert "canary" in str(await contents(rig.pipe.store))
    assert (await cli("sessions", "delete", key_of(), "--yes")).code == 0
    found = await contents(rig.pipe.store)
    assert [table for table, rows in found.items() if "canary" in str(rows)] == []


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_a_vacuum_that_cannot_be_done_deletes_nothing(rig: Rig, cli: Cli) -> None:
    await rig.accept("hello")
    await rig.run_turns()
    refused = await cli("sessions", "delete", key_of(), "--yes", "--vacuum")
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert await rig.transcript() == ["hello", "echo: hello"]


# -- what goes out without a question


async def test_send_says_something_once_per_key_and_tells_each_target(rig: Rig, cli: Cli) -> None:
    first = await cli("send", "webhook:c1", "the build is red", "--key", "k1", "--also", "signal", "--json")
    assert first.code == 1  # signal is not connected
    assert [(told["target"], told["outcome"]) for told in first.json] == [
        ("webhook:c1", "accepted"),
        ("signal", "refused"),
    ]
    again = await cli("send", "webhook:c1", "the build is red", "--key", "k1")
    assert again.code == 0 and "known" in again.out
    await rig.run_turns()
    assert await rig.transcript() == ["the build is red"]
    wrong = await cli("send", "nowhere", "hello")
    assert (wrong.code, wrong.err.count("\n")) == (1, 1) and "nowhere" in wrong.err


async def test_a_schedule_is_added_listed_shown_run_paused_resumed_and_removed(rig: Rig, cli: Cli) -> None:
    added = (
        await cli(
            "schedule", "add", "every 1d at 09:00", "news?", "--to", "webhook:c1", "--policy", "overlap=queue", "--json"
        )
    ).json
    assert "0 9 * * *" in added["when"] and len(added["next"]) == 3 and added["to"] == ["webhook:c1"]
    assert (added["missed"], added["overlap"]) == ("last", "queue")
    id = added["id"]
    assert [one["id"] for one in (await cli("schedule", "list", "--json")).json] == [id]
    begun = (await cli("schedule", "run", id, "--json")).json
    await rig.run_turns(begun["session_key"])
    shown = (await cli("schedule", "show", id, "--json")).json
    assert [(slot["by_hand"], slot["state"], slot["turn"]) for slot in shown["slots"]] == [(True, "fired", "answered")]
    assert "answered" in (await cli("schedule", "show", id)).out
    assert (await cli("schedule", "pause", id)).code == 0
    assert (await cli("schedule", "pause", id)).code == 1
    assert (await cli("schedule", "list", "--json")).json[0]["state"] == "paused"
    assert "goes on" in (await cli("schedule", "resume", id)).out
    assert (await cli("schedule", "remove", id)).code == 0
    assert (await cli("schedule", "list")).out.strip() == "there are no schedules"


# -- what is not there


@pytest.mark.parametrize(
    "command",
    [
        ("messages", "trace", "in_nobody"),
        ("keys", "show", "agent:main:webhook:dm:nobody"),
        ("keys", "show", "to:webhook:nobody"),
        ("keys", "release", "agent:main:webhook:dm:nobody"),
        ("dead", "show", "99"),
        ("dead", "replay", "99"),
        ("dead", "drop", "99"),
        ("sessions", "show", "ses_nobody"),
        ("schedule", "show", "sch_nobody"),
        ("schedule", "remove", "sch_nobody"),
        ("schedule", "pause", "sch_nobody"),
        ("schedule", "resume", "sch_nobody"),
        ("schedule", "run", "sch_nobody"),
    ],
)
async def test_an_unknown_id_is_one_line_and_exit_code_1(cli: Cli, command: tuple[str, ...]) -> None:
    printed = await cli(*command)
    assert (printed.code, printed.out) == (1, "")
    assert printed.err.startswith("keyturn: ") and printed.err.count("\n") == 1 and command[-1] in printed.err


@pytest.mark.parametrize("command", [("keys", "list"), ("keys", "show", key_of()), ("keys", "release", key_of())])
async def test_a_redis_that_is_down_is_one_line_and_exit_code_1(
    cli: Cli, environment: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    environment.setenv("KEYTURN_REDIS_URL", f"redis://:canary@127.0.0.1:{child.free_port()}/0")
    printed = await cli(*command)
    assert (printed.code, printed.out, printed.err.count("\n")) == (1, "", 1)
    assert printed.err.startswith("keyturn: Redis: ") and "canary" not in printed.err


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite:////nonexistent/keyturn.db", "no database at /nonexistent/keyturn.db"),
        ("postgresql://u:canary@127.0.0.1:1/db", 'PostgreSQL: 127.0.0.1:1 does not answer (connection to server at "'),
    ],
)
async def test_a_database_that_is_down_is_one_line_and_exit_code_1(
    lone_cli: Cli, environment: pytest.MonkeyPatch, url: str, words: str
) -> None:
    environment.setenv("KEYTURN_REDIS_URL", "redis://127.0.0.1:1/0")
    environment.setenv("KEYTURN_DATABASE_URL", url)
    printed = await lone_cli("sessions", "list")
    assert (printed.code, printed.out, printed.err.count("\n")) == (1, "", 1)
    assert printed.err.startswith(f"keyturn: {words}") and "canary" not in printed.err


async def test_a_redis_url_that_cannot_be_read_is_not_quoted(lone_cli: Cli, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("KEYTURN_REDIS_URL", "redis://:can/ary@127.0.0.1:6379/0")
    for command in (("sessions", "list"), ("doctor",)):
        printed = await lone_cli(*command)
        assert printed.code != 0 and "can/ary" not in printed.out + printed.err
        assert "Traceback" not in printed.err


@pytest.mark.parametrize(
    "group",
    [
        (),
        ("messages",),
        ("keys",),
        ("dead",),
        ("sessions",),
        ("doctor",),
        ("keys", "release"),
        ("keys", "pause"),
        ("keys", "resume"),
        ("schedule",),
        ("send",),
    ],
)
async def test_every_command_explains_itself(lone_cli: Cli, group: tuple[str, ...]) -> None:
    printed = await lone_cli(*group, "--help")
    assert printed.code == 0 and "Usage" in printed.out


# -- doctor


def levels(printed: Printed, check: str) -> set[str]:
    return {found["level"] for found in printed.json["checks"] if found["check"].startswith(check)}


async def test_doctor_finds_a_sound_deployment_sound_and_prints_no_secret(
    cli: Cli, settings: Settings, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("KEYTURN_API__KEYS", "canary-canary-canary")
    printed, as_json = await cli("doctor"), await cli("doctor", "--json")
    assert (printed.code, as_json.code, as_json.json["ok"]) == (0, 0, True)
    assert levels(as_json, "schema") == levels(as_json, "append only") == levels(as_json, "eviction") == {"ok"}
    assert settings.redis_url is not None
    password = settings.redis_url.get_secret_value().partition("://:")[2].partition("@")[0]
    for secret in (password, WEBHOOK_SECRET, "canary"):
        assert secret and secret not in printed.out + as_json.out + printed.err


async def test_doctor_says_how_to_fix_what_fails(rig: Rig, cli: Cli, environment: pytest.MonkeyPatch) -> None:
    client = rig.pipe.servers.all[0].client
    environment.setenv("KEYTURN_AGENT", "no_such_module:agent")
    environment.setenv("KEYTURN_WEBHOOK__SECRETS", "whsec_canary")
    await client.config_set("maxmemory-policy", "allkeys-lru")
    await client.config_set("maxmemory", str(2**40))
    try:
        printed = await cli("doctor", "--json")
    finally:
        await client.config_set("maxmemory-policy", "noeviction")
        await client.config_set("maxmemory", "0")
    assert printed.code == 1 and "canary" not in printed.out
    for check in ("agent", "webhook", "eviction"):
        assert levels(printed, check) == {"fail"}
    assert all(found["fix"] for found in printed.json["checks"] if found["level"] != "ok")


async def test_doctor_finds_a_redis_that_is_down(cli: Cli, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("KEYTURN_REDIS_URL", f"redis://:canary@127.0.0.1:{child.free_port()}/0")
    printed = await cli("doctor", "--json")
    assert (printed.code, levels(printed, "redis"), levels(printed, "schema")) == (1, {"fail"}, {"ok"})
    assert "canary" not in printed.out + printed.err


async def test_doctor_finds_settings_that_do_not_load(lone_cli: Cli, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("KEYTURN_HEARTBEAT_SECONDS", "9")
    printed = await lone_cli("doctor", "--json")
    assert (printed.code, levels(printed, "settings")) == (1, {"fail"})


async def test_doctor_finds_a_missing_schema_and_makes_none(
    cli: Cli, environment: pytest.MonkeyPatch, settings: Settings, tmp_path: Path
) -> None:
    if settings.database.startswith("sqlite:"):
        environment.setenv("KEYTURN_DATABASE_URL", f"sqlite:///{tmp_path}/elsewhere/keyturn.db")
        check = "database"
    else:
        environment.setenv("KEYTURN_DATABASE_URL", settings.database.rpartition("/")[0] + "/postgres")
        check = "schema"
    printed = await cli("doctor", "--json")
    assert (printed.code, levels(printed, check)) == (1, {"fail"})
    assert "keyturn migrate" in printed.out and not (tmp_path / "elsewhere").exists()
    listed = await cli("sessions", "list")
    assert (listed.code, listed.err.count("\n")) == (1, 1) and "keyturn migrate" in listed.err


async def test_doctor_finds_mail_that_redis_lost_and_nobody_woke(rig: Rig, cli: Cli) -> None:
    await accept(rig.pipe, replace(an_inbound(), received_at=1))
    await rig.pipe.servers.all[0].client.flushall()
    printed = await cli("doctor", "--json")
    assert (printed.code, levels(printed, "backlog")) == (1, {"fail"})


async def test_doctor_finds_keys_that_nobody_looks_after(rig: Rig, cli: Cli) -> None:
    await rig.accept("hello")
    await rig.lease()
    await rig.expire_lease(rig.pipe.turns, key_of())
    printed = await cli("doctor", "--json")
    assert (printed.code, levels(printed, "housekeeper")) == (1, {"fail"})


async def test_doctor_finds_wakes_that_no_worker_serves(rig: Rig, cli: Cli) -> None:
    assert levels(await cli("doctor", "--json"), "workers") == {"warn"}
    await rig.accept("hello")
    printed = await cli("doctor", "--json")
    assert (printed.code, levels(printed, "workers")) == (1, {"fail"})


@pytest.mark.parametrize(("partitions", "level"), [(2, "ok"), (3, "fail")])
async def test_doctor_finds_workers_of_other_partitions(rig: Rig, cli: Cli, partitions: int, level: str) -> None:
    queues = [keys.queue_name(lane, p) for lane in ("turns", "deliveries", "control") for p in range(partitions)]
    connection = redis.Redis.from_url(rig.pipe.servers.all[0].url)
    worker = KeyturnWorker(queues, name="w1", connection=connection, serializer=Serializer, prepare_for_work=False)
    worker.hostname, worker.pid = "here", 1
    await asyncio.to_thread(worker.register_birth)
    assert level in levels(await cli("doctor", "--json"), "workers")
    connection.close()


async def test_pair_lists_approves_and_revokes_and_no_answer_holds_a_code(rig: Rig, cli: Cli) -> None:
    pairings = rig.pipe.store.pairings
    assert "nobody" in (await cli("pair", "list")).out
    _, code = await ask_for_code(pairings, a_person(name="\x1b[2JAnn"))
    listed = await cli("pair", "list", "--json")
    [request] = listed.json["requests"]
    assert (request["platform"], request["user"], listed.json["approved"]) == ("telegram", "11", [])
    assert code not in listed.out and "\x1b" not in (await cli("pair", "list")).out
    wrong = await cli("pair", "approve", "telegram", "AAAAAAAA")
    assert wrong.code == 1 and "no valid code" in wrong.err and len(wrong.err.splitlines()) == 1
    approved = await cli("pair", "approve", "telegram", code.lower(), "--json")
    assert (approved.code, approved.json["user"], approved.json["state"]) == (0, "11", "approved")
    assert (await cli("pair", "approve", "telegram", code)).code == 1
    [person] = (await cli("pair", "list", "--json")).json["approved"]
    assert (person["user"], person["by"]) == ("11", "command line")
    assert (await cli("pair", "revoke", "telegram", "11")).code == 0
    assert (await cli("pair", "revoke", "telegram", "11")).code == 1
    assert (await cli("pair", "approve", "webhook", code)).code == 1


async def test_a_reload_that_nobody_hears_says_so(rig: Rig, cli: Cli) -> None:
    alone = await cli("reload")
    assert alone.code == 1 and "no receiver or listener" in alone.err
