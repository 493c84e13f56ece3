"""Every Redis name is made here.

kt:<lane>:mail:<key>   sorted set, score = seq: the mailbox
kt:<lane>:lane:<key>   hash token/until/of/attempts/failed/job/since/stop/outage/waited/hears/paused: absent = idle
kt:<lane>:due          sorted set key -> ms: when the housekeeper should look at a key that is not idle
kt:<lane>:parked       sorted set `scope key`, all scores 0: the keys that a pause holds; they are not in `due`
kt:pauses              hash of the scopes that are paused; absent = none
kt:pauses:version      which version of the pauses that is, by the database
kt:seen:<message id>   the message's key, with a TTL, only with durability = redis: the dedupe memory
kt:noticed:<destination>  exists for 30 s after a chat was told that its message waits
kt:session:<session id>  hash lease token -> ticket:until, only while several keys talk to one session
kt:events:<key>        channel: a reply of this session was put out
kt:events:live:<message id>  channel: what an agent has said so far, while somebody waits for its answer
kt:events:news         channel: who may talk has changed (`paired`), or settings are to be read again (`reload`)
kt:quota:<what>:<whose>  counts with a TTL: see producers/quotas.py
kt:pieces:<whose>      string with a TTL: messages of a group that may belong to one that mentions us: see producers/pieces.py
kt:limits:<account>    hash with a TTL: what may still be asked of a model's provider: see workers/limits
kt:permits:<account>   sorted set with a TTL, permit -> ms: the open requests to a model's provider, and when each is given up
kt:events:cooldowns    channel: a provider has asked everybody to wait
kt:budget:<bot or destination>  hash with a TTL: what was sent lately; see shared/sending/budgets.py
kt:listener:<platform>:<account>  string with a TTL: the token of the one process that listens there
kt:position:<platform>:<account>  string with a TTL: how far a listener has seen what its connection brings
kt:housekeeper         string with a TTL: when a housekeeper last went through this server's due keys (wall clock, ms)
kt:synthetic           hash at/ms: when the last synthetic message was delivered, and how long it took; on every server
kt:restore             never there: a restore asks by it whether it may remove names
Keys at rest leave nothing behind.
"""

from __future__ import annotations

import socket
from hashlib import blake2b


def partition(key: str, partitions: int) -> int:
    """The partition of a key: stable across processes, machines and versions."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big") % partitions


def worker_name_prefix(pid: int) -> str:
    """How the name of a worker process begins; a random part follows, so that a reused pid is no old name."""
    return f"{socket.gethostname()}-{pid}-"


def short_name(*parts: str) -> str:
    """A short part of a name, made from ids: they may be long, and are not Redis' to know."""
    return blake2b("\0".join(parts).encode(errors="replace"), digest_size=16).hexdigest()


def queue_name(lane: str, partition: int) -> str:
    return f"{lane}-{partition}"


def lane_of_queue(queue: str) -> str:
    """The lane whose wakes this queue holds."""
    return queue.rpartition("-")[0]


def partition_of_queue(queue: str) -> int:
    return int(queue.rpartition("-")[2])


def mail(lane: str, key: str) -> str:
    return f"kt:{lane}:mail:{key}"


def state(lane: str, key: str) -> str:
    return f"kt:{lane}:lane:{key}"


def due(lane: str) -> str:
    return f"kt:{lane}:due"


def parked(lane: str) -> str:
    return f"kt:{lane}:parked"


PAUSES = "kt:pauses"
PAUSES_VERSION = "kt:pauses:version"


def seen(message_id: str) -> str:
    return f"kt:seen:{message_id}"


def noticed(destination: str) -> str:
    return f"kt:noticed:{destination}"


def events(session_key: str) -> str:
    return f"kt:events:{session_key}"


def live_text(message_id: str) -> str:
    return f"kt:events:live:{message_id}"


NEWS = events("news")
COOLDOWNS = events("cooldowns")
HOUSEKEEPER = "kt:housekeeper"
HOUSEKEEPER_TTL_S = 7 * 86_400  # what is left of it says how old the sign is, by Redis' own clock
SYNTHETIC = "kt:synthetic"
RESTORE = "kt:restore"


def quota(what: str, whose: str) -> str:
    return f"kt:quota:{what}:{whose}"


def pieces(whose: str) -> str:
    return f"kt:pieces:{whose}"


def limits(account: str) -> str:
    return f"kt:limits:{account}"


def permits(account: str) -> str:
    return f"kt:permits:{account}"


def send_budget(whose: str) -> str:
    return f"kt:budget:{whose}"


def session_lock(session_id: str) -> str:
    return f"kt:session:{session_id}"


def listener(platform: str, account: str) -> str:
    return f"kt:listener:{platform}:{account}"


def position(platform: str, account: str) -> str:
    return f"kt:position:{platform}:{account}"
