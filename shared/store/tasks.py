"""Background work: what runs, for whom, and how it ended. Tables: tasks, task_stops.

A task is here before its message is in the journal, and ends here after its result is. So after a crash at any point it is found
running, and its message and its answer say what is left to do.
"""

from __future__ import annotations

from typing import Any, Protocol, TypedDict, Unpack

import orjson

from shared.clock import now_ms
from shared.codec import decode_source, encode_text
from shared.store.database import Database, Row
from shared.store.database.statements import Step, declared
from shared.store.endings import TASK_ENDED, end_sessions, to_end
from shared.tasks.task import BackgroundTask, TaskKind, TaskState, task_key
from shared.value import value


class TaskRow(TypedDict):
    """A task that is added; `most`: how many of its conversation may run at a time."""

    id: str
    kind: str
    name: str
    text: str
    root_key: str
    parent_key: str
    parent: str
    asked_by: str
    owner: str
    depth: int
    in_a_row: int
    inbound_id: str
    asked_at: int
    created_at: int
    most: int


class TasksSql(Protocol):
    """The statements of tasks.sql, with the values that each needs."""

    def lock_conversation(self, *, root_key: str) -> Step: ...
    def add_task(self, **row: Unpack[TaskRow]) -> Step: ...
    def task_by_id(self, *, id: str) -> Step: ...
    def tasks_of(self, *, root_key: str, limit: int) -> Step: ...
    def mark_stop(self, *, root_key: str, stopped_at: int) -> Step: ...
    def tasks_to_stop(self, *, root_key: str, stopped_at: int) -> Step: ...
    def stop_tasks(self, *, root_key: str, stopped_at: int, now: int) -> Step: ...
    def end_task(self, *, id: str, state: str, now: int) -> Step: ...
    def unseen_tasks(self, *, before: int, limit: int) -> Step: ...
    def tasks_to_forget(self, *, before: int) -> Step: ...
    def forget_tasks(self, *, rows: str) -> Step: ...
    def forget_stops(self, *, before: int) -> Step: ...


sql = declared(TasksSql)


@value
class UnseenTask:
    """A task that counts as running, though its message has ended or is not in the journal."""

    task: BackgroundTask
    turn: str | None  # the state of its message; None: the journal does not know it
    reason: str | None  # why its message ended so
    is_leaving: bool  # its answer is on its way
    is_lost: bool  # its answer could not be passed on


class Tasks:
    """What a method has written when it returns survives a crash."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, task: BackgroundTask, most: int) -> bool:
        """Keep a new task. False: it is known, or as many of its conversation run as may."""
        row: TaskRow = {
            "id": task.id,
            "kind": task.kind.value,
            "name": task.name,
            "text": task.text,
            "root_key": task.root_key,
            "parent_key": task.parent_key,
            "parent": encode_text(task.parent),
            "asked_by": encode_text(task.asked_by),
            "owner": task.owner,
            "depth": task.depth,
            "in_a_row": task.in_a_row,
            "inbound_id": task.inbound_id,
            "asked_at": task.asked_at,
            "created_at": task.created_at,
            "most": most,
        }
        lock = sql.lock_conversation(root_key=task.root_key)  # PostgreSQL: of two at once neither would count the other
        [_, added] = await self._database.write(lock, sql.add_task(**row))
        return bool(added)

    async def find(self, id: str) -> BackgroundTask | None:
        """The task. It is stopped, too, if its conversation was told to stop after it was asked for."""
        [rows] = await self._database.read(sql.task_by_id(id=id))
        return _task(rows[0]) if rows else None

    async def running(self, root_key: str, limit: int) -> list[BackgroundTask]:
        """The tasks of a conversation that run, and those that they started, oldest first."""
        [rows] = await self._database.read(sql.tasks_of(root_key=root_key, limit=limit))
        return [_task(row) for row in rows]

    async def mark_stop(self, root_key: str, at: int) -> list[BackgroundTask]:
        """Let nothing begin any more that was asked for in a conversation by then. Gives what counts as running of it."""
        await self._database.write(sql.mark_stop(root_key=root_key, stopped_at=at))
        [rows] = await self._database.read(sql.tasks_to_stop(root_key=root_key, stopped_at=at))
        return [_task(row) for row in rows]

    async def stop(self, root_key: str, at: int, now: int) -> None:
        """Record that what was asked for in a conversation by then is stopped."""
        await self._database.write(sql.stop_tasks(root_key=root_key, stopped_at=at, now=now))

    async def end(self, id: str, state: TaskState, now: int) -> bool:
        """Record how a task ended. False: it had ended before."""
        [rows] = await self._database.write(sql.end_task(id=id, state=state.value, now=now))
        return bool(rows)

    async def unseen(self, before: int, limit: int) -> list[UnseenTask]:
        """Tasks from before then whose end nobody has recorded."""
        [rows] = await self._database.read(sql.unseen_tasks(before=before, limit=limit))
        return [
            UnseenTask(_task(row), row["turn"], row["turn_reason"], bool(row["leaving"]), bool(row["lost"]))
            for row in rows
        ]

    async def forget(self, before: int) -> None:
        """Forget what ended before then, and of which no answer can come any more. The sessions of those tasks end."""
        [rows] = await self._database.read(sql.tasks_to_forget(before=before))
        keys = [task_key(row["parent_key"], row["id"]) for row in rows]
        await self._database.write(
            to_end(keys, TASK_ENDED), sql.forget_tasks(rows=encode_text(rows)), sql.forget_stops(before=before)
        )
        await end_sessions(self._database, now_ms())


def _task(row: Row) -> BackgroundTask:
    return BackgroundTask(
        id=row["id"],
        kind=TaskKind(row["kind"]),
        name=row["name"],
        text=row["text"],
        root_key=row["root_key"],
        parent_key=row["parent_key"],
        parent=_source(row["parent"]),
        asked_by=_source(row["asked_by"]),
        owner=row["owner"],
        depth=row["depth"],
        asked_at=row["asked_at"],
        created_at=row["created_at"],
        in_a_row=row["in_a_row"],
        state=TaskState(row["state"]),
    )


def _source(text: str) -> Any:
    return decode_source(orjson.loads(text))
