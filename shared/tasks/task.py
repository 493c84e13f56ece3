"""A task as it is kept: what is to be done in the background, for whom, and where its result goes."""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b

from shared.codec import message_id
from shared.messages import Kind, Source, TaskInbound
from shared.session_key import SessionKey
from shared.value import value

OUTLET = "task"  # stands for a platform in keys and addresses: answers of tasks go there, and from there to who asked


class TaskKind(StrEnum):
    """Who asked, and so what becomes of the result."""

    BACKGROUND = "background"  # a person, by /background: the chat is told the result
    ASIDE = "aside"  # a person, by /btw: the same, and the task begins with what was said in the conversation so far
    AGENT = "agent"  # an agent, by a tool: it reads the result in a turn of its own


class TaskState(StrEnum):
    """Where a task stands."""

    RUNNING = "running"  # waiting or running
    DONE = "done"
    FAILED = "failed"  # its message became a dead letter: how far it came is unknown
    STOPPED = "stopped"
    UNKNOWN = "unknown"  # it ended without a result that could be passed on


@value
class BackgroundTask:
    """One piece of background work. Its id follows from what asked for it, so that asking again starts nothing new."""

    id: str
    kind: TaskKind
    name: str  # how people know it: the beginning of its text
    text: str  # what the agent is asked; empty when it has ended
    root_key: str  # the conversation of a chat in which all of it began
    parent_key: str  # the conversation that asked: the same, or that of another task
    parent: Source  # whom the result is for
    asked_by: Source  # the person whose rights it has
    owner: str
    depth: int  # 1: asked for in a chat
    asked_at: int  # when the message was received that led to it, wall clock, ms: /stop said later stops it
    created_at: int
    in_a_row: int = 0  # messages that nobody wrote which led to it, one from another
    state: TaskState = TaskState.RUNNING

    @property
    def key(self) -> SessionKey:
        """The conversation that it runs in: its own, with the agent that was asked."""
        return task_key(self.parent_key, self.id)

    @property
    def inbound_id(self) -> str:
        return message_id(OUTLET, "", self.id)

    def inbound(self) -> TaskInbound:
        """What its agent is asked."""
        return TaskInbound(
            self.inbound_id,
            self.id,
            Source(OUTLET, self.id, chat_name=self.name),
            self.text,
            received_at=self.created_at,
            purpose=Kind.TASK,
            owned_by=self.owner or None,
            asked_by=self.asked_by,
        )


def task_id(asked_with: str) -> str:
    """The id of the task that a message or a tool call asks for."""
    return f"task_{blake2b(asked_with.encode(), digest_size=15).hexdigest()}"


def task_key(parent_key: str, id: str) -> SessionKey:
    """The conversation of a task, by the conversation that asked for it."""
    return SessionKey(SessionKey.parse(parent_key).agent, OUTLET, "", "dm", id)


def task_of(session_key: str) -> str | None:
    """The task whose conversation that is; None where it is a chat's."""
    key = SessionKey.parse(session_key)
    return key.chat if key.platform == OUTLET else None
