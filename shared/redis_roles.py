"""Which process may do what in Redis: one ACL user per role. `keyturn deploy acl` writes the users from this table.

Rights inside a Lua script are those of its caller, checked at each call. So a role needs the commands and the names that its
scripts use, and a script that lacks one is refused: tests run every role with its rights and look at Redis' ACL LOG.
Whoever may put mail into a mailbox tells the worker that runs the key's turn, so all but viewers may publish to workers.
Nobody may empty or configure the server, or read a name that is not Keyturn's or RQ's. Only `keyturn restore` may list names (SCAN).
"""

from __future__ import annotations

from collections.abc import Sequence

from shared.lane.rq_names import CHANNEL_PREFIX, EVERYTHING, JOB_PREFIX, QUEUE_PREFIX, QUEUES
from shared.value import value

_EVENTS, _COMMANDS = "&kt:events:*", f"&{CHANNEL_PREFIX}*"  # channels: news and live text; orders to RQ workers
_ALL_OURS, _ALL_OF_RQ = "~kt:*", f"~{EVERYTHING}"
_WAKES = (f"~{QUEUES}", f"~{QUEUE_PREFIX}*", f"~{JOB_PREFIX}*")  # what putting a message into a mailbox writes
_READ_RQ = f"%R~{EVERYTHING}"
# Reading, writing, one's own connection. What is dangerous, waits or lists names is taken away again.
_COMMON = (
    "+@read",
    "+@write",
    "+@connection",
    "+@pubsub",
    "+eval",
    "+evalsha",
    "+time",
    "+multi",
    "+exec",
    "+discard",
    "-@dangerous",
    "-@blocking",
    "-scan",
    "-randomkey",
    "-pubsub",
)


@value
class RedisRole:
    """A kind of process and its rights, in the words of `ACL SETUSER`."""

    name: str
    runs: str  # the commands of keyturn that it is for
    names: tuple[str, ...]  # key patterns
    channels: tuple[str, ...]
    commands: tuple[str, ...]

    @property
    def rights(self) -> tuple[str, ...]:
        """Everything that it may do; nothing else."""
        return *self.names, "resetchannels", *self.channels, "-@all", *self.commands


ROLES = (
    RedisRole("receiver", "receive", (_ALL_OURS, *_WAKES, _READ_RQ), (_EVENTS, _COMMANDS), _COMMON),
    RedisRole("listener", "listen", (_ALL_OURS, *_WAKES), (_EVENTS, _COMMANDS), _COMMON),
    RedisRole(
        "worker",
        "work",
        (_ALL_OURS, _ALL_OF_RQ),
        (_EVENTS, _COMMANDS),
        (*_COMMON, "+blmove", "+client|unblock", "+client|id", "+info"),
    ),
    RedisRole("housekeeper", "housekeep", (_ALL_OURS, _ALL_OF_RQ), (_EVENTS, _COMMANDS), _COMMON),
    RedisRole("dashboard", "dashboard", (_ALL_OURS, *_WAKES, _READ_RQ), (_EVENTS, _COMMANDS), _COMMON),
    RedisRole(
        "operator",
        "doctor, keys, messages, dead, send and the other commands, rq info, RQ's dashboards",
        (_ALL_OURS, _ALL_OF_RQ),
        (_EVENTS, _COMMANDS),
        (*_COMMON, "+info"),
    ),
    RedisRole(
        "restorer",
        "restore",
        (_ALL_OURS, _ALL_OF_RQ),
        (_EVENTS, _COMMANDS),
        (*_COMMON, "+scan", "+info"),
    ),
    RedisRole(
        "viewer",
        "tools that only read; rq info needs operator",
        ("%R~kt:*", _READ_RQ),
        (),
        ("+@read", "+@connection", "+time", "-@dangerous", "-@blocking", "-scan", "-randomkey", "+info"),
    ),
)


# Users of the servers themselves, where Sentinels watch a primary and its replicas.
REPLICA = RedisRole("replica", "replicas, with their primary", (), (), ("+psync", "+replconf", "+ping"))
SENTINEL = RedisRole(
    "sentinel",
    "Sentinels, with the servers that they watch",
    (),
    ("&__sentinel__:hello",),
    (
        "+ping",
        "+info",
        "+role",
        "+subscribe",
        "+publish",
        "+multi",
        "+exec",
        "+replicaof",
        "+slaveof",
        "+config|rewrite",
        "+client|setname",
        "+client|kill",
        "+script|kill",
    ),
)


def role(name: str) -> RedisRole:
    """The role of that name."""
    return next(role for role in ROLES if role.name == name)


def acl_line(role: RedisRole, password_sha256: str) -> str:
    """The role's line in an ACL file of Redis. It holds a hash, not the password."""
    return " ".join(("user", role.name, "on", f"#{password_sha256}", *role.rights))


def acl_file(hashes: Sequence[tuple[RedisRole, str]]) -> str:
    """A whole ACL file: the users of all roles, and nobody without a name."""
    lines = ["user default off resetpass", *(acl_line(role, digest) for role, digest in hashes)]
    return "".join(f"{line}\n" for line in lines)
