"""In which chat a hermes session was held that the index no longer names.

Newer databases say it in columns. Of older ones, what is known is the platform and who began it, and which session it
followed from. A session that several people may have shared is never given to the one who began it: the reader looks at
its rows before it believes what follows from the user alone (`Entry.by_user`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from keyturn.importing.hermes.entries import ONE_ID, HermesEntry, entry_of_columns, id_of, text_of
from keyturn.importing.rows import object_of
from shared.messages import Source

HELPER = "it is a helper's work for another session, not a conversation"
UNSIGNED = "it is of a version that did not say who of several people wrote, and nothing says in which chat"
_TERMINALS = frozenset({"cli", "tui"})
_API = "api_server"

Sessions = Mapping[str, Mapping[str, Any]]


def places(indexed: Sequence[HermesEntry], sessions: Sessions) -> dict[str, HermesEntry | str]:
    """The sessions that the index does not name: each with its place, or with the reason why it has none."""
    known = {entry.session_id: entry for entry in indexed}
    left = [id for id in sessions if id not in known]
    helpers = {id for id in left if _is_helper(sessions[id], sessions)}
    found = {id: place for id in left if id not in helpers and (place := _by_itself(sessions[id])) is not None}
    _follow(found, known, sessions, helpers)
    people = _people(indexed)
    by_user = {id: _by_user(sessions[id], people) for id in left if id not in found and id not in helpers}
    found |= {id: place for id, place in by_user.items() if isinstance(place, HermesEntry)}
    _follow(found, known, sessions, helpers)
    return {id: HELPER if id in helpers else found.get(id) or by_user[id] for id in left}


def _by_itself(row: Mapping[str, Any]) -> HermesEntry | None:
    """What a session's own row says. A client of the API names a session by its id, a terminal has no chats."""
    id, platform = str(row["id"]), text_of(row.get("source"))
    if (place := entry_of_columns(row)) is not None:
        return place
    if platform == _API:
        return HermesEntry(id, "", Source(_API, id))
    if platform in _TERMINALS:
        return HermesEntry(id, "", Source("local", "cli"), is_current=False)
    return None


def _by_user(row: Mapping[str, Any], people: Mapping[tuple[str, str], HermesEntry]) -> HermesEntry | str:
    """The chat that the index knows of the person, or the private chat that has their id; else why there is none."""
    id, platform, user = str(row["id"]), text_of(row.get("source")), id_of(row.get("user_id"))
    if not platform or not user:
        return _unknown(row)
    if not row.get(
        "api_call_count"
    ):  # counted since shortly after every row of a shared session begins with its sender
        return UNSIGNED
    if (known := people.get((platform, user))) is not None:
        return HermesEntry(id, known.old_key, known.source, is_current=False, by_user=True)
    if platform in ONE_ID:
        return HermesEntry(id, "", Source(platform, user, user=user), is_current=False, by_user=True)
    return _unknown(row)


def _people(indexed: Sequence[HermesEntry]) -> dict[tuple[str, str], HermesEntry]:
    """A place of each person's own: a private chat, best one without a thread, else their part of a group."""
    found: dict[tuple[str, str], HermesEntry] = {}
    for entry in sorted(indexed, key=_rank, reverse=True):
        source = entry.source
        if source is None or source.user is None:
            continue
        is_their_part = source.thread is None and entry.old_key.endswith(f":{source.user_alt or source.user}")
        if source.chat_type == "dm" or is_their_part:
            found[source.platform, source.user] = entry  # what comes later is better
    return found


def _rank(entry: HermesEntry) -> int:
    source = entry.source
    if source is None or source.chat_type != "dm":
        return 2
    return 1 if source.thread else 0


def _follow(
    found: dict[str, HermesEntry], known: Mapping[str, HermesEntry], sessions: Sessions, helpers: Iterable[str]
) -> None:
    """What followed from a session was said in the same chat, and the other way round."""
    helpers = set(helpers)
    links = [(id, parent) for id, row in sessions.items() if (parent := text_of(row.get("parent_session_id")))]
    pairs = [pair for pair in links if pair[1] in sessions and not helpers & set(pair)]
    moved = True
    while moved:
        moved = False
        for a, b in (*pairs, *((parent, id) for id, parent in pairs)):
            place = known.get(a) or found.get(a)
            if place is not None and b not in known and b not in found:
                found[b] = HermesEntry(b, place.old_key, place.source, is_current=False, by_user=place.by_user)
                moved = True


def _is_helper(row: Mapping[str, Any], sessions: Sessions) -> bool:
    """A child that is neither a branch of its parent nor its continuation was run to help in it."""
    config = object_of(row.get("model_config")) or {}
    if config.get("_delegate_from"):
        return True
    parent = sessions.get(text_of(row.get("parent_session_id")) or "")
    if parent is None or config.get("_branched_from"):
        return False
    return parent.get("end_reason") not in ("branched", "compression") and entry_of_columns(row) is None


def _unknown(row: Mapping[str, Any]) -> str:
    return f"nothing says in which chat it was held ({text_of(row.get('source')) or 'unknown source'})"
