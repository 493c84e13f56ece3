"""What the database has of one person: found, handed over, forgotten. Reads whole tables: for an operator, never for a turn.

`forget` is several transactions. After a crash, doing it again finishes it: each transaction removes what it finds.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import Protocol

import orjson

from shared.codec import encode_text
from shared.context.marks import ASKED_BY, EARLIER, REMOVED, SENDER, SENDER_ID
from shared.context.runtime import GOAL, goal_of
from shared.errors import Malformed
from shared.escape import parse_bot
from shared.ids import fresh_id
from shared.lane_key import ControlKey, Destination, conversation_of
from shared.person import Person
from shared.session_key import SessionKey
from shared.store import pauses, retention
from shared.store.database import Database, Row
from shared.store.database.statements import Step, declared
from shared.store.endings import ENDING
from shared.store.facts import HOMES
from shared.store.quoted import Quoted, read_object
from shared.tasks.task import OUTLET, task_key, task_of
from shared.value import value

_BLOB = re.compile(r"blob:([0-9a-f]{64})/")
_KEY = re.compile(r"(?:agent|control|to):[^\s,;'\"]*[^\s,;:.'\")]")  # within a sentence
FORGOTTEN = "forgotten"  # what an operator's action names in place of a person's conversation


class PeopleSql(Protocol):
    """The statements of people.sql, with the values that each needs."""

    def owned_by(self, *, pattern: str) -> Step: ...
    def sessions_of_keys(self, *, keys: str) -> Step: ...
    def keys_of_sessions(self, *, sessions: str) -> Step: ...
    def keys_like(self, *, pattern: str) -> Step: ...
    def keys_of_chat(self, *, pattern: str) -> Step: ...
    def tasks_like(self, *, pattern: str, keys: str) -> Step: ...
    def asks_like(self, *, pattern: str) -> Step: ...
    def paired_ids(self, *, platform: str, id: str) -> Step: ...
    def rows_by_sender(self, *, pattern: str) -> Step: ...
    def rows_of_sessions(self, *, sessions: str) -> Step: ...
    def rows_with_quotes(self, *, pattern: str) -> Step: ...
    def inbox_with_quotes(self, *, pattern: str) -> Step: ...
    def letters_with_quotes(self, *, pattern: str) -> Step: ...
    def inbox_like(self, *, pattern: str, keys: str) -> Step: ...
    def note_owners(self, *, pattern: str) -> Step: ...
    def notes_of_owners(self, *, keys: str, sessions: str) -> Step: ...
    def schedules_like(self, *, pattern: str) -> Step: ...
    def usage_like(self, *, pattern: str) -> Step: ...
    def pairing_of(self, *, platform: str, id: str) -> Step: ...
    def blobs_of_sessions(self, *, sessions: str) -> Step: ...
    def letters_like(self, *, pattern: str, keys: str) -> Step: ...
    def parts_like(self, *, pattern: str) -> Step: ...
    def audit_with_keys(self) -> Step: ...
    def kept_inbounds(self, *, rows: str) -> Step: ...
    def kept_parts(self, *, keys: str) -> Step: ...
    def kept_letters(self, *, rows: str) -> Step: ...
    def kept_tasks(self, *, rows: str) -> Step: ...
    def kept_asks(self, *, keys: str, pattern: str) -> Step: ...
    def forget_session_turns(self, *, sessions: str, keys: str) -> Step: ...
    def unquote_rows(self, *, session_id: str, turn_id: str, rows: str) -> Step: ...
    def unquote_inbox(self, *, rows: str) -> Step: ...
    def unquote_letters(self, *, rows: str) -> Step: ...
    def note_files(self, *, files: str, at: str) -> Step: ...
    def noted_files(self) -> Step: ...
    def forget_noted_files(self, *, files: str) -> Step: ...
    def forget_inbox(self, *, rows: str) -> Step: ...
    def forget_known_messages(self, *, keys: str) -> Step: ...
    def forget_key_outbox(self, *, keys: str) -> Step: ...
    def forget_turn_outbox(self, *, rows: str, messages: str) -> Step: ...
    def forget_parts(self, *, rows: str) -> Step: ...
    def forget_routes(self, *, keys: str) -> Step: ...
    def forget_key_asks(self, *, keys: str) -> Step: ...
    def forget_shared_asks(self, *, rows: str) -> Step: ...
    def forget_person_tasks(self, *, rows: str) -> Step: ...
    def forget_task_stops(self, *, keys: str) -> Step: ...
    def facts_of_chats(self) -> Step: ...
    def forget_facts(self, *, rows: str) -> Step: ...
    def closed_like(self, *, pattern: str) -> Step: ...
    def forget_closed_chats(self, *, chats: str) -> Step: ...
    def forget_letters(self, *, rows: str) -> Step: ...
    def forget_audit(self, *, rows: str) -> Step: ...
    def forget_notes(self, *, keys: str) -> Step: ...
    def forget_schedules(self, *, rows: str) -> Step: ...
    def forget_fires(self, *, rows: str) -> Step: ...
    def forget_usage(self, *, keys: str) -> Step: ...
    def forget_codes(self, *, platform: str, id: str) -> Step: ...
    def forget_requests(self, *, platform: str, id: str) -> Step: ...
    def forget_pairing(self, *, platform: str, id: str) -> Step: ...
    def called(self, *, session_id: str) -> Step: ...
    def sign_session(
        self, *, session_id: str, version: int, turn_id: str, title: str | None, seen: str | None
    ) -> Step: ...
    def forget_goal(self, *, session_id: str, turn_id: str) -> Step: ...
    def blank_rows(self, *, session_id: str, turn_id: str, text: str, rows: str) -> Step: ...
    def forget_shared_blob(self, *, session_id: str, turn_id: str, digest: str) -> Step: ...


sql = declared(PeopleSql)


@value
class PersonRecords:
    """What there is of a person: rows as the tables have them."""

    sessions: tuple[Row, ...]  # their own
    keys: tuple[str, ...]  # of their own conversations, control keys included
    shared_rows: tuple[Row, ...]  # what they said in conversations of several
    quotes: tuple[Row, ...]  # rows of others that quote them: `text` of them, and `data` without it
    quoting: tuple[Row, ...]  # ended messages of others that do
    quoting_letters: tuple[Row, ...]  # dead letters of others that do
    waiting: tuple[str, ...]  # messages of theirs that have not ended
    ended: tuple[str, ...]  # messages of theirs that have
    turns: tuple[str, ...]  # that answered them
    parts: tuple[int, ...]  # of replies to them that have ended: their messages may have lost the words that say so
    letters: tuple[int, ...]  # dead letters
    note_owners: tuple[str, ...]
    notes: tuple[Row, ...]
    schedules: tuple[Row, ...]
    usage: tuple[Row, ...]
    pairing: tuple[Row, ...]
    blobs: tuple[str, ...]  # digests of their files
    tasks: tuple[str, ...]  # background work that they asked for
    asks: tuple[str, ...]  # questions to them in conversations of several
    chats: tuple[str, ...]  # destinations of their private chats, which may be closed
    facts: tuple[Row, ...]  # of their keys, and home channels that are their private chats
    pauses: tuple[Row, ...]  # that hold their conversations or private chats
    audit: tuple[Row, ...]  # actions of operators that name one of those, as they read without the name


@value
class PersonWords:
    """What they said, what was answered and asked outside of transcripts, as far as it is kept. Rows as the tables have them."""

    inbounds: tuple[Row, ...]
    parts: tuple[Row, ...]
    letters: tuple[Row, ...]
    tasks: tuple[Row, ...]
    asks: tuple[Row, ...]


class PeopleStore:
    """Finds and forgets what is kept of a person."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def other_ids(self, person: Person) -> list[str]:
        """The other ids of a person, as far as their messages or how they were let in still say them. A platform that gives two
        ids has sessions under the one and senders of rows under the other."""
        nobody = _listed("key", ())
        inbox, letters, paired = await self._database.read(
            sql.inbox_like(pattern=person.pattern, keys=nobody),
            sql.letters_like(pattern=person.pattern, keys=nobody),
            sql.paired_ids(platform=person.platform, id=person.id),
        )
        found = {id for row in (*inbox, *letters) for id in person.other_ids(row["payload"])}
        found |= {row[name] for row in paired for name in ("user_id", "user_alt") if row[name]}
        return sorted(found - {person.id})

    async def records(self, person: Person) -> PersonRecords:
        """Everything that can be told to be theirs."""
        [owned] = await self._database.read(sql.owned_by(pattern=person.key_pattern))
        private, others = await self._private_chats(person)
        named = [*await self._named(person), *private]
        sessions = [row for row in owned if person.owns(row["owner"])]
        sessions += await self._of_tasks(person, {row["id"] for row in sessions})
        listed = _listed("id", (row["id"] for row in sessions))
        talked, blobs = await self._database.read(
            sql.keys_of_sessions(sessions=listed), sql.blobs_of_sessions(sessions=listed)
        )
        keys = _with_control_keys([*named, *(row["session_key"] for row in talked)])
        [asked] = await self._database.read(sql.tasks_like(pattern=person.pattern, keys=_listed("key", keys)))
        tasks = [row for row in asked if row["root_key"] in keys or person.is_source(row["asked_by"])]
        keys = _with_control_keys([*keys, *(str(task_key(row["parent_key"], row["id"])) for row in tasks)])
        of_keys = _listed("key", keys)
        found = await self._database.read(
            sql.rows_by_sender(pattern=person.pattern),
            sql.asks_like(pattern=person.pattern),
            sql.inbox_like(pattern=person.pattern, keys=of_keys),
            sql.letters_like(pattern=person.pattern, keys=of_keys),
            sql.note_owners(pattern=person.key_pattern),
            sql.schedules_like(pattern=person.key_pattern),
            sql.usage_like(pattern=person.key_pattern),
            sql.pairing_of(platform=person.platform, id=person.id),
            sql.closed_like(pattern=person.key_pattern),
            pauses.sql.pause_list(),
            sql.audit_with_keys(),
            sql.parts_like(pattern=person.pattern),
            sql.facts_of_chats(),
        )
        said, asks, inbox, letters, notes, schedules, usage, pairing, closed, paused, audit, parts, facts = found
        named_by = _NamesOf(person, frozenset((*keys, *_chats(keys))), others)
        own = {row["id"] for row in sessions}
        quotes = await self._quotes(person, listed, own, said, inbox)
        theirs = [row for row in inbox if row["session_key"] in keys or person.sent(row["payload"])]
        note_owners = [row["owner"] for row in notes if person.has_key(row["owner"]) or row["owner"] in keys]
        [noted] = await self._database.read(sql.notes_of_owners(keys=_listed("key", note_owners), sessions=listed))
        shared_rows = [row for row in said if row["session_id"] not in own and _is_by(person, row)]
        files = {row["digest"]: None for row in blobs} | {digest: None for row in shared_rows for digest in _files(row)}
        return PersonRecords(
            sessions=tuple(sessions),
            keys=keys,
            shared_rows=tuple(shared_rows),
            quotes=quotes[0],
            quoting=quotes[1],
            quoting_letters=quotes[2],
            waiting=tuple(row["id"] for row in theirs if row["state"] == "pending"),
            ended=tuple(row["id"] for row in theirs if row["state"] != "pending"),
            turns=tuple(row["turn_id"] for row in theirs if row["turn_id"] is not None),
            parts=tuple(row["id"] for row in parts if person.is_answered(row["payload"])),
            letters=tuple(row["id"] for row in letters if row["session_key"] in keys or person.sent(row["payload"])),
            note_owners=tuple(note_owners),
            notes=tuple(noted),
            schedules=tuple(row for row in schedules if person.owns(row["owner"])),
            usage=tuple(row for row in usage if person.owns(row["owner"])),
            pairing=tuple(pairing),
            blobs=tuple(files),
            tasks=tuple(row["id"] for row in tasks),
            asks=tuple(row["id"] for row in asks if person.is_source(row["source"])),
            chats=(*_chats(keys), *(row["destination"] for row in closed if _is_chat_with(person, row["destination"]))),
            facts=tuple(
                {"scope": row["scope"], "name": row["name"]} for row in facts if named_by.is_theirs(_chat_of_fact(row))
            ),
            pauses=tuple(row for row in paused if named_by.is_theirs(row["scope"])),
            audit=tuple(row for action in audit if (row := named_by.without(action)) is not None),
        )

    async def words(self, person: Person, found: PersonRecords) -> PersonWords:
        """What the journal, the outbox, dead letters, background tasks and questions hold of theirs."""
        keys = _listed("key", found.keys)
        inbounds, parts, letters, tasks, asks = await self._database.read(
            sql.kept_inbounds(rows=_listed("id", (*found.waiting, *found.ended))),
            sql.kept_parts(keys=keys),
            sql.kept_letters(rows=_listed("id", found.letters)),
            sql.kept_tasks(rows=_listed("id", found.tasks)),
            sql.kept_asks(keys=keys, pattern=person.pattern),
        )
        theirs = [row for row in asks if row["session_key"] in found.keys or person.is_source(row["source"])]
        return PersonWords(tuple(inbounds), tuple(parts), tuple(letters), tuple(tasks), tuple(theirs))

    async def unquote(self, found: PersonRecords) -> bool:
        """Take their words out of rows and messages of others that quote them. False: a turn moved a session on meanwhile, and
        its rows still do. A message that waits is left: it is met again when it has ended."""
        await self._database.write(
            sql.unquote_inbox(rows=encode_text(found.quoting)),
            sql.unquote_letters(rows=encode_text(found.quoting_letters)),
        )
        whole = True
        for (session_id, version), rows in groupby(found.quotes, key=lambda row: (row["session_id"], row["version"])):
            turn_id = f"forget_{fresh_id()}"
            signed, *_ = await self._database.write(
                sql.sign_session(session_id=session_id, version=version, turn_id=turn_id, title=None, seen=None),
                sql.unquote_rows(session_id=session_id, turn_id=turn_id, rows=encode_text([*rows])),
            )
            whole &= bool(signed)
        return whole

    async def note_files(self, digests: Iterable[str], at: int) -> None:
        """Write down that files are to be removed, unless it is written already. It does not say whose they are."""
        await self._database.write(sql.note_files(files=_listed("digest", digests), at=str(at)))

    async def noted_files(self) -> dict[str, int]:
        """The files that are to be removed, and since when (ms)."""
        [rows] = await self._database.read(sql.noted_files())
        return {row["digest"]: int(row["since"]) for row in rows}

    async def forget_noted_files(self, digests: Iterable[str]) -> None:
        """Write down no more that files are to be removed."""
        await self._database.write(sql.forget_noted_files(files=_listed("digest", digests)))

    async def forget(self, person: Person, found: PersonRecords) -> None:
        """Remove all records but their sessions and what they said in conversations of several. Pauses end in the database only:
        enforce_pauses has to follow."""
        sessions, keys = _listed("id", (row["id"] for row in found.sessions)), _listed("key", found.keys)
        schedules = _listed("id", (row["id"] for row in found.schedules))
        owners = _listed("key", {row["owner"] for row in found.usage})
        resumed = [pauses.sql.pause_remove(scope=row["scope"]) for row in found.pauses]
        await self._database.write(
            sql.forget_session_turns(sessions=sessions, keys=keys),
            sql.forget_letters(rows=_listed("id", found.letters)),
            sql.forget_key_outbox(keys=keys),
            sql.forget_turn_outbox(rows=_listed("id", found.turns), messages=_listed("id", found.ended)),
            sql.forget_parts(rows=_listed("id", found.parts)),
            sql.forget_key_asks(keys=keys),
            sql.forget_shared_asks(rows=_listed("id", found.asks)),
            sql.forget_person_tasks(rows=_listed("id", found.tasks)),
            sql.forget_task_stops(keys=keys),
            sql.forget_facts(rows=encode_text(found.facts)),
            sql.forget_closed_chats(chats=_listed("key", found.chats)),
            sql.forget_inbox(rows=_listed("id", found.ended)),
            sql.forget_known_messages(keys=keys),  # after the journal, from which a housekeeper may just move some
            sql.forget_routes(keys=keys),
            sql.forget_notes(keys=_listed("key", found.note_owners)),
            sql.forget_fires(rows=schedules),
            sql.forget_schedules(rows=schedules),
            sql.forget_usage(keys=owners),
            sql.forget_codes(platform=person.platform, id=person.id),
            sql.forget_requests(platform=person.platform, id=person.id),
            sql.forget_pairing(platform=person.platform, id=person.id),
            sql.forget_audit(rows=encode_text(found.audit)),
            *((*resumed, pauses.sql.pause_changed()) if resumed else ()),
        )

    async def blank(self, rows: Sequence[Row]) -> bool:
        """Remove the words and files of rows of one session, and its title and its goal where those are from such a row. False: a
        turn moved it on meanwhile, or it was given a title, and they are still there."""
        session_id, version, turn_id = rows[0]["session_id"], rows[0]["version"], f"forget_{fresh_id()}"
        listed = encode_text([{"session_id": session_id, "n": row["n"]} for row in rows])
        files = {digest: None for row in rows for digest in _files(row)}
        unindexed = await retention.forgotten(
            self._database, listed
        )  # rows that keep their words after all: found by reading
        [[called]] = await self._database.read(sql.called(session_id=session_id))
        goal = goal_of({GOAL: called["goal"] or called["old_goal"] or ""})
        title = called["title"] if _is_from(called["title"], rows) else None
        signed, *_ = await self._database.write(
            sql.sign_session(
                session_id=session_id, version=version, turn_id=turn_id, title=title, seen=called["title"] or ""
            ),
            *(
                [sql.forget_goal(session_id=session_id, turn_id=turn_id)]
                if goal and _is_from(goal.objective, rows)
                else ()
            ),
            *unindexed,
            sql.blank_rows(session_id=session_id, turn_id=turn_id, text=REMOVED, rows=listed),
            *(sql.forget_shared_blob(session_id=session_id, turn_id=turn_id, digest=digest) for digest in files),
        )
        return bool(signed)

    async def _quotes(
        self, person: Person, sessions: str, own: Collection[str], said: Iterable[Row], inbox: Iterable[Row]
    ) -> tuple[tuple[Row, ...], tuple[Row, ...], tuple[Row, ...]]:
        """What others quoted of them: in rows, in ended messages, in dead letters."""
        mine, rows, messages, letters = await self._database.read(
            sql.rows_of_sessions(sessions=sessions),
            sql.rows_with_quotes(pattern=person.pattern),
            sql.inbox_with_quotes(pattern=person.pattern),
            sql.letters_with_quotes(pattern=person.pattern),
        )
        words = Quoted(person)
        for row in (*mine, *(row for row in said if _is_by(person, row))):
            words.add(row["session_key"], row["text"], read_object(row["data"]).get(SENDER))
        for row in inbox:
            for text, name in person.said_in(row["payload"]):
                words.add(row["session_key"], text, name)
        in_rows = [
            {**row, "data": data, "text": read_object(row["data"])[EARLIER]}
            for row in rows
            if row["session_id"] not in own and (data := words.out_of_row(row["session_key"], row["data"])) is not None
        ]
        in_messages, in_letters = (
            tuple(
                {"id": row["id"], "payload": payload}
                for row in found
                if (payload := words.out_of_message(row["session_key"], row["payload"])) is not None
            )
            for found in (messages, letters)
        )
        return tuple(in_rows), in_messages, in_letters

    async def _of_tasks(self, person: Person, known: Collection[str]) -> list[Row]:
        """The conversations of background work that the person asked for in a chat of several: to them belongs what the chat does."""
        nobody = _listed("key", ())
        asked, inbox, said = await self._database.read(
            sql.tasks_like(pattern=person.pattern, keys=nobody),
            sql.inbox_like(pattern=person.pattern, keys=nobody),
            sql.rows_by_sender(pattern=person.pattern),
        )
        keys = {str(task_key(row["parent_key"], row["id"])) for row in asked if person.is_source(row["asked_by"])}
        keys |= {row["session_key"] for row in inbox if person.sent(row["payload"]) and _is_of_task(row["session_key"])}
        asked_for = (row for row in said if person.is_asker(read_object(row["data"]).get(ASKED_BY)))
        keys |= {row["session_key"] for row in asked_for if _is_of_task(row["session_key"])}
        [rows] = await self._database.read(sql.sessions_of_keys(keys=_listed("key", keys)))
        return [row for row in rows if row["id"] not in known]

    async def _named(self, person: Person) -> list[str]:
        [rows] = await self._database.read(sql.keys_like(pattern=person.key_pattern))
        return [row["session_key"] for row in rows if person.has_key(row["session_key"])]

    async def _private_chats(self, person: Person) -> tuple[list[str], frozenset[str]]:
        """Private chats that have the person's id, where no session and no message says that they are somebody else's: of a
        conversation that was deleted, only its key is left. Then the others, which are somebody else's."""
        [rows] = await self._database.read(sql.keys_of_chat(pattern=person.key_pattern))
        theirs = {row["session_key"]: None for row in rows if person.has_private_chat(row["session_key"])}
        known = frozenset(theirs)
        for row in rows:
            owned_by_other = row["owner"] is not None and not person.owns(row["owner"])
            if owned_by_other or (row["payload"] is not None and not person.sent(row["payload"])):
                theirs.pop(row["session_key"], None)
        return [*theirs], known - theirs.keys()


@value
class _NamesOf:
    """Tells which keys and chats name a person: those that are known as theirs, and those that have their id."""

    person: Person
    known: frozenset[str]
    others: frozenset[str]  # keys with the id that are somebody else's

    def is_theirs(self, text: str) -> bool:
        """Whether a key or a destination is theirs."""
        if text in self.known or self.person.has_key(text) or _is_chat_with(self.person, text):
            return True
        return self.person.has_private_chat(text) and text not in self.others

    def without(self, action: Row) -> Row | None:
        """An action of an operator as it reads without them, and its outcome until now; None: it does not name them."""
        target, outcome = (_KEY.sub(self._replaced, action[name]) for name in ("target", "outcome"))
        if (target, outcome) == (action["target"], action["outcome"]):
            return None
        return {"id": action["id"], "target": target, "outcome": outcome, "was": action["outcome"]}

    def _replaced(self, found: re.Match[str]) -> str:
        return FORGOTTEN if self.is_theirs(found[0]) else found[0]


def _is_of_task(key: str) -> bool:
    try:
        return task_of(key) is not None
    except Malformed:  # of control messages, for example
        return False


def _is_by(person: Person, row: Row) -> bool:
    try:
        key = SessionKey.parse(conversation_of(row["session_key"]))
        # A task begins with rows of the conversation that asked (/btw), whose platform its owner names.
        platform = key.platform if key.platform != OUTLET else parse_bot((row["owner"] or "").partition(":")[0])[0]
        return platform == person.platform and orjson.loads(row["data"]).get(SENDER_ID) == person.id
    except (Malformed, orjson.JSONDecodeError, AttributeError):
        return False


def _is_from(called: str | None, rows: Sequence[Row]) -> bool:
    """Whether a title or a goal stands in one of the rows, as one that was made of its first words or given by it does."""
    words = _words((called or "").removesuffix("…"))
    return bool(words) and any(words in _words(row["text"]) for row in rows)


def _words(text: str) -> str:
    return " ".join(text.casefold().split())


def _files(row: Row) -> list[str]:
    """The digests of the files that a row of a transcript names."""
    return [*dict.fromkeys(_BLOB.findall(row["data"]))]


def _chat_of_fact(row: Row) -> str:
    """The key that a fact names or, of a home channel, where it is; empty for what cannot be read."""
    if row["scope"] == ENDING:
        return str(row["name"])
    if row["scope"] != HOMES:
        return str(row["name"]).partition(":")[2]
    home = read_object(row["value"])
    return str(Destination(row["name"], str(home.get("account") or ""), str(home.get("chat") or "")))


def _is_chat_with(person: Person, destination: str) -> bool:
    """Whether a chat is one with the person: some platforms call it by the person's own id."""
    try:
        to = Destination.parse(destination)
    except Malformed:
        return False
    return (to.platform, to.chat) == (person.platform, person.id)


def _chats(keys: Iterable[str]) -> Iterable[str]:
    """Where replies to private chats among the keys leave for."""
    for key in keys:
        try:
            parsed = SessionKey.parse(conversation_of(key))
        except Malformed:
            continue
        if parsed.chat_type == "dm":
            yield str(Destination(parsed.platform, parsed.account, parsed.chat))


def _with_control_keys(keys: Iterable[str]) -> tuple[str, ...]:
    found = dict.fromkeys(keys)
    for key in [*found]:
        try:
            found[str(ControlKey(SessionKey.parse(conversation_of(key))))] = None
        except Malformed:
            continue
    return tuple(found)


def _listed(name: str, values: Iterable[object]) -> str:
    return encode_text([{name: value} for value in values])
