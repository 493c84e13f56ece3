"""The promises, each as a function from the evidence to what breaks it. Empty lists are what we want to see."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import groupby, pairwise

from shared.messages import State
from tests.faults.evidence import Evidence, Row
from tests.faults.recovery import reply_seconds
from tests.faults.steps import effects, repeated_steps
from tests.support.platform import Callback
from tests.support.scripted import Noted, Script
from workers.turn.conclude import UNFINISHED

Check = Callable[[Evidence], Iterator[str]]
REPLY_SECONDS = 120.0  # on a machine that is busy with other things too, and where several workers die with the reply
NOTICES = 1  # parts that tell a chat of a dead letter
TO_A_TASK = "to:task:"  # how the destinations of results of background tasks begin
CONTROL = "control:"  # how the keys of control messages begin


def lost(evidence: Evidence) -> Iterator[str]:
    """Every accepted message has its user row in the transcript, or is a dead letter with a reason."""
    inbox = {row["id"]: row for row in evidence.inbox}
    spoken = {row["inbound_id"] for row in evidence.messages if row["role"] == "user"}
    buried = {row["ref"] for row in evidence.dead if row["kind"] == "inbound" and row["reason"]}
    for id, message in evidence.accepted.items():
        state = inbox[id]["state"] if id in inbox else "absent"
        if not (state == "answered" and id in spoken) and not (state == "dead" and id in buried):
            yield f"{message.event_id}: {state}, user row {id in spoken}, dead letter {id in buried}"


def doubled(evidence: Evidence) -> Iterator[str]:
    """No message has two user rows or two dead letters, or was answered and is a dead letter, and nothing is there that nobody sent.
    A dead letter whose tools had effects has a user row, with a note of them."""
    of_flood = {session["id"] for session in evidence.sessions if evidence.of_flood(session)}
    spoken = [row for row in evidence.messages if row["role"] == "user" and row["session_id"] not in of_flood]
    users = Counter(row["inbound_id"] for row in spoken if row["inbound_id"] not in evidence.flood)
    copied = Counter((row["inbound_id"], row["session_id"]) for row in spoken)  # /branch copies rows to other sessions
    buried = Counter(row["ref"] for row in evidence.dead if row["kind"] == "inbound")
    dead = {row["id"] for row in evidence.inbox if row["state"] == "dead"}
    for id in users | buried:
        if users[id] > 1 or buried[id] > 1 or (users[id] and buried[id] and id not in dead):
            yield f"{id}: {users[id]} user rows, {buried[id]} dead letters"
    for (id, session), count in copied.items():
        if count > 1:
            yield f"{id}: {count} user rows in {session}"
    for row in evidence.inbox:
        if row["id"] not in evidence.accepted and row["id"] not in evidence.flood and not evidence.of_flood(row):
            yield f"{row['id']}: in the journal, and nobody sent it"


def reordered(evidence: Evidence) -> Iterator[str]:
    """Each key's journal and transcript are in the order in which its messages were sent."""
    number = {id: message.n for id, message in evidence.accepted.items()}
    for key, rows in groupby(evidence.inbox, key=lambda row: row["session_key"]):
        order = [(row["seq"], number[row["id"]]) for row in rows if row["id"] in number]
        if any(seq != n for seq, n in order):
            yield f"{key}: journal {order[:20]}"
    for session, rows in groupby(evidence.messages, key=lambda row: row["session_id"]):
        spoken = [number[row["inbound_id"]] for row in rows if row["role"] == "user" and row["inbound_id"] in number]
        if any(later <= earlier for earlier, later in pairwise(spoken)):
            yield f"{session}: transcript {spoken[:50]}"


def overlapping_in_effect(evidence: Evidence) -> Iterator[str]:
    """Each version of a session was made by one commit, and each commit ended one message."""
    commits = {key: list(rows) for key, rows in groupby(evidence.turns, key=lambda row: row["session_key"])}
    for session in evidence.sessions:
        if session["session_key"].startswith(CONTROL):
            yield f"{session['session_key']}: a session of control messages"
        if evidence.of_flood(session):
            continue
        versions = [row["version"] for row in commits.get(session["session_key"], [])]
        if versions != list(range(1, session["version"] + 1)):
            yield f"{session['session_key']}: version {session['version']}, commits {versions[:50]}"
    for turn_id, count in Counter(row["turn_id"] for row in evidence.inbox if row["turn_id"]).items():
        if count != 1:
            yield f"{turn_id}: ended {count} messages"
    for route in evidence.routes:
        if route["done_seq"] != route["last_seq"]:
            yield f"{route['session_key']}: done {route['done_seq']} of {route['last_seq']}"


def torn_turns(evidence: Evidence) -> Iterator[str]:
    """A turn's rows stand together, user row first, exactly those that the agent gave; numbers have no gaps. A dead letter whose tools
    had effects leaves its user row and a note of them."""
    counts = {
        session["id"]: session["message_count"] for session in evidence.sessions if not evidence.of_flood(session)
    }
    dead = {row["turn_id"] for row in evidence.inbox if row["state"] == State.DEAD}
    seen: set[str] = set()
    for session, found in groupby(evidence.messages, key=lambda row: row["session_id"]):
        rows = list(found)
        if session not in counts:
            continue
        if [row["n"] for row in rows] != list(range(1, counts[session] + 1)):
            yield f"{session}: {counts[session]} rows said, numbers {[row['n'] for row in rows][:50]}"
        for turn_id, grouped in groupby(rows, key=lambda row: row["turn_id"]):
            turn = list(grouped)
            said = [row["text"] for row in turn[1:] if row["role"] == "assistant" and row["text"]]
            if turn_id in dead and len(turn) == 2 and turn[1]["text"].startswith(UNFINISHED):
                seen.add(turn_id)
                continue
            script = Script.read(turn[0]["text"])
            expected = script.replies
            called = ["assistant", *["tool"] * len(script.tools)] if script.tools else []
            roles = ["user", *called, *["assistant"] * len(expected)]
            if turn_id in seen or [row["role"] for row in turn] != roles:
                yield f"{turn_id}: rows apart or of the wrong kind {[(row['n'], row['role']) for row in turn]}"
            elif said != expected:
                yield f"{turn_id}: {said} instead of {expected}"
            seen.add(turn_id)


def two_turns_at_once(evidence: Evidence) -> Iterator[str]:
    """While a key's lease lives, one turn of it runs. A lease may end under a process that stands still, and only then."""
    for key, found in groupby(sorted(evidence.noted, key=lambda note: (note.key, note.at)), key=lambda note: note.key):
        if key in evidence.expired or evidence.leases_forgotten:
            continue
        open_turns: dict[str, Noted] = {}
        for note in found:
            if note.event != "begin":
                if note.event not in ("effect", "finished"):
                    open_turns.pop(note.turn, None)
                continue
            for other in list(open_turns.values()):
                if evidence.died_at.get(other.worker, note.at + 1) > note.at:
                    yield f"{key}: {other} still ran at {note}"
            open_turns = {note.turn: note}


def outbox_rows(evidence: Evidence) -> Iterator[str]:
    """Each committed turn has one outbox row per part of its answer, and each of them was sent."""
    texts = {row["turn_id"]: row["text"] for row in evidence.messages if row["role"] == "user"}
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in evidence.outbox:
        rows[row["turn_id"]].append(row)
        if row["state"] != "sent":
            yield f"{row['idempotency_key']}: {row['state']}"
    for turn in evidence.turns:
        if evidence.of_flood(turn):
            rows.pop(turn["id"], None)
            continue
        parts = len(Script.read(texts[turn["id"]]).replies) if turn["id"] in texts else NOTICES
        ordinals = sorted(row["ordinal"] for row in rows.pop(turn["id"], []))
        if ordinals != list(range(1, parts + 1)):
            yield f"{turn['id']}: parts {ordinals}, {parts} expected"
    for message in evidence.inbox:
        if message["session_key"].startswith(CONTROL) and message["turn_id"]:  # it ended by itself, without a turn
            ordinals = sorted(row["ordinal"] for row in rows.pop(message["turn_id"], []))
            if not ordinals or ordinals != list(range(1, len(ordinals) + 1)):
                yield f"{message['id']}: a control message with the parts {ordinals}"
    for turn_id in rows:
        yield f"{turn_id}: parts of a turn that was never committed"


def sends(evidence: Evidence) -> Iterator[str]:
    """Chats show each part once, in order; a second send of a part only where its row says that it may have happened."""
    rows = {row["idempotency_key"]: row for row in evidence.outbox if not row["destination"].startswith(TO_A_TASK)}
    taken = Counter(callback.id for callback in evidence.platform.callbacks if callback.taken)
    for id in taken.keys() - rows.keys():
        yield f"{id}: sent, and nobody had decided it"
    for id, row in rows.items():
        if taken[id] == 0:
            yield f"{id}: never arrived"
        elif taken[id] > 1 and not row["ambiguous"]:
            yield f"{id}: arrived {taken[id]} times and is not flagged"
    for chat, shown in evidence.platform.shown().items():
        ids = [rows[callback.id]["id"] for callback in _first_of_each(shown) if callback.id in rows]
        if ids != sorted(ids):
            yield f"{chat}: shown in the order {ids[:50]}"
        if evidence.platform.idempotent and len(ids) != len(shown):
            yield f"{chat}: {len(shown)} parts shown, {len(ids)} different ones"
    if evidence.platform.forged:
        yield f"{evidence.platform.forged} callbacks had a wrong signature"


def dead_letters(evidence: Evidence) -> Iterator[str]:
    """All poison is set aside with its cause, and nothing else is."""
    causes = {"raise": "error", "hang": "timeout", "crash": "crashed", "refuse": "refused"}
    poison = {id: message.poison for id, message in evidence.accepted.items() if message.poison}
    for row in evidence.dead:
        expected = causes.get(poison.pop(row["ref"], ""))
        # Poison of one kind may share a process with poison that takes it down: then that is its cause.
        if row["kind"] != "inbound" or expected is None or row["reason"] not in (expected, "crashed"):
            yield f"{row['kind']} {row['ref']} of {row['session_key']}: {row['reason']} ({row['detail']}), expected {expected}"
    for id, word in poison.items():
        yield f"{evidence.accepted[id].event_id}: {word} and yet not set aside"


def commands(evidence: Evidence) -> Iterator[str]:
    """Every command, whatever its arguments, is answered or was stopped by its user, and what is behind it is answered. /start is
    answered with nothing; /stop and /new end the turn before them."""
    inbox = {row["id"]: row for row in evidence.inbox}
    replies = Counter(row["turn_id"] for row in evidence.outbox)
    for id, message in evidence.flood.items():
        row = inbox.get(id, {"state": "absent", "reason": None, "turn_id": None})
        stopped = row["state"] == "superseded" and row["reason"] in ("stopped", "interrupted")
        is_told = replies[row["turn_id"]] or message.text.startswith("/start")
        if not stopped and not (row["state"] == "answered" and is_told):
            yield f"{message.event_id} {message.text[:60]!r}: {row['state']} ({row['reason']}), {replies[row['turn_id']]} parts"


def slow_replies(evidence: Evidence) -> Iterator[str]:
    """A reply arrives soon after its turn has ended: two minutes at most, not counting the time when a server was away."""
    for id, seconds in reply_seconds(evidence).items():
        if seconds > REPLY_SECONDS:
            yield f"{id}: {seconds:.1f} s"


def left_in_redis(evidence: Evidence) -> Iterator[str]:
    """Keys at rest leave nothing behind."""
    yield from evidence.residue


def no_progress(evidence: Evidence) -> Iterator[str]:
    """No key stands still for longer than the bound while the servers answer."""
    yield from evidence.stood_still


CHECKS: dict[str, Check] = {
    "no progress": no_progress,
    "lost": lost,
    "doubled": doubled,
    "reordered": reordered,
    "overlapping in effect": overlapping_in_effect,
    "torn turns": torn_turns,
    "two turns at once": two_turns_at_once,
    "repeated steps": repeated_steps,
    "effects": effects,
    "outbox rows": outbox_rows,
    "sends": sends,
    "dead letters": dead_letters,
    "commands": commands,
    "slow replies": slow_replies,
    "left in Redis": left_in_redis,
}
UNBROKEN: dict[str, list[str]] = {name: [] for name in CHECKS}  # what `check` finds when nothing is wrong


def check(evidence: Evidence) -> dict[str, list[str]]:
    """Every promise with what breaks it."""
    return {name: list(look(evidence)) for name, look in CHECKS.items()}


def _first_of_each(shown: list[Callback]) -> list[Callback]:
    seen: set[str] = set()
    return [callback for callback in shown if not (callback.id in seen or seen.add(callback.id))]  # type: ignore[func-returns-value]
