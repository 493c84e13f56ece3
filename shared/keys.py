"""Every Redis name is made here.

kt:<lane>:mail:<key>   sorted set, score = seq: the mailbox
kt:<lane>:lane:<key>   hash token/until/of/attempts/failed/job/since/stop/outage/waited: awake, leased or delayed; absent = idle
kt:<lane>:due          sorted set key -> ms: when the housekeeper should look at a key that is not idle
kt:seen:<message id>   the message's key, with a TTL, only with durability = redis: the dedupe memory
kt:session:<session id>  hash lease token -> ticket:until, only while several keys talk to one session
kt:events:<key>        channel: a reply of this session was put out
kt:events:live:<message id>  channel: what an agent has said so far, while somebody waits for its answer
kt:events:news         channel: who may talk has changed (`paired`), or settings are to be read again (`reload`)
kt:quota:<what>:<whose>  counts with a TTL: see producers/quotas.py
kt:listener:<platform>:<account>  string with a TTL: the token of the one process that listens there
kt:position:<platform>:<account>  string with a TTL: how far a listener has seen what its connection brings
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


def seen(message_id: str) -> str:
    return f"kt:seen:{message_id}"


def events(session_key: str) -> str:
    return f"kt:events:{session_key}"


def live_text(message_id: str) -> str:
    return f"kt:events:live:{message_id}"


NEWS = events("news")


def quota(what: str, whose: str) -> str:
    return f"kt:quota:{what}:{whose}"


def session_lock(session_id: str) -> str:
    return f"kt:session:{session_id}"


def listener(platform: str, account: str) -> str:
    return f"kt:listener:{platform}:{account}"


def position(platform: str, account: str) -> str:
    return f"kt:position:{platform}:{account}"
