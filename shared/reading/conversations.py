"""Conversations: what Redis and the journal say of each, found by a query. A search looks at a bounded number of keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from shared.clock import moment, now_ms
from shared.errors import Malformed
from shared.escape import escape
from shared.pipeline import Pipeline
from shared.reading.conversation_query import ConversationQuery
from shared.reading.keys import KeyPhase, KeyState, keys_at_work, states_of_keys
from shared.reading.sessions import NEWEST
from shared.session_key import SessionKey
from shared.store.database import Row
from shared.synthetic import is_synthetic
from shared.value import value

LOOKED_AT = 1000  # keys that a search looks at


@value
class Conversation:
    """A conversation in a list. `oldest` is when the message that waits longest was received."""

    key: str
    platform: str
    state: KeyState
    waiting: int
    attempts: int
    oldest: datetime | None
    title: str | None
    updated_at: datetime | None

    @property
    def waited_ms(self) -> int:
        return max(0, now_ms() - int(self.oldest.timestamp() * 1000)) if self.oldest is not None else 0


@value
class FoundConversations:
    """What a search found, the longest wait first, then the last active. Not complete: LOOKED_AT keys were looked at."""

    conversations: tuple[Conversation, ...]
    complete: bool


@value
class RecentConversation:
    """A conversation that was active lately. The title is a stranger's text."""

    key: str
    platform: str
    title: str | None
    rows: int  # of its transcript
    updated_at: datetime


async def recent_conversations(pipe: Pipeline, limit: int) -> tuple[RecentConversation, ...]:
    """The conversations with the newest turns, the newest first. Goes by index."""
    newest: dict[str, RecentConversation] = {}
    for row in await pipe.store.overview.sessions(NEWEST, 2 * limit):
        key = row["session_key"]
        found = RecentConversation(key, platform_of(key), row["title"], row["message_count"], moment(row["updated_at"]))
        if not is_synthetic(key):
            newest.setdefault(key, found)
    return tuple(newest.values())[:limit]


async def find_conversations(
    pipe: Pipeline, query: ConversationQuery, limit: int, *, at_work: bool = False
) -> FoundConversations:
    """The conversations that match; Unavailable where a store that would know does not answer.

    `at_work`: only those that are not idle, so stored sessions are not looked at.
    """
    sessions = {} if at_work else await _sessions(pipe, query)
    awake = [] if query.state is KeyPhase.IDLE else await keys_at_work(pipe.turns, LOOKED_AT)
    working = {state.key: state for state in awake if _may_match(state.key, query)}
    named = [] if at_work else _named(query)
    others = [key for key in dict.fromkeys([*named, *sessions]) if key not in working and _may_match(key, query)]
    described = await _described(pipe, working, others[: 2 * limit], sessions)
    found = [one for one in described if _matches(one, query)]
    found.sort(key=lambda one: (-one.waited_ms, -(one.updated_at.timestamp() if one.updated_at is not None else 0)))
    complete = max(len(awake), len(sessions)) < LOOKED_AT and len(found) <= limit
    return FoundConversations(tuple(found[:limit]), complete)


async def _sessions(pipe: Pipeline, query: ConversationQuery) -> dict[str, Row]:
    """Sessions that may match, by key, where the query asks for more than what is at work."""
    rows: list[Row] = []
    if query.user is not None:
        platforms = [query.platform] if query.platform is not None else pipe.settings.connected
        for platform in platforms:
            for kind in ("u", "a"):
                rows += await pipe.store.overview.sessions_of(f"{platform}:{kind}={escape(query.user)}", LOOKED_AT)
    elif not query.asks_for_work:
        rows = await pipe.store.overview.sessions(NEWEST, LOOKED_AT)
    newest: dict[str, Row] = {}
    for row in rows:
        newest.setdefault(row["session_key"], row)
    return newest


def _named(query: ConversationQuery) -> list[str]:
    """The keys that the query gives whole."""
    return [word for word in query.words if platform_of(word)]


def platform_of(key: str) -> str:
    """The platform of a session key; empty for anything else."""
    try:
        return SessionKey.parse(key).platform
    except Malformed:
        return ""


def _may_match(key: str, query: ConversationQuery) -> bool:
    """What the key alone can say. Synthetic messages are nobody's conversation."""
    if is_synthetic(key):
        return False
    if query.platform is not None and platform_of(key) != query.platform:
        return False
    return all(word in key for word in query.words)


async def _described(
    pipe: Pipeline, working: Mapping[str, KeyState], others: Sequence[str], sessions: dict[str, Row]
) -> list[Conversation]:
    states = [*working.values(), *await states_of_keys(pipe.turns, others)]
    journaled = {row["session_key"]: row for row in await pipe.store.overview.waiting([state.key for state in states])}
    return [_conversation(state, journaled.get(state.key), sessions.get(state.key)) for state in states]


def _conversation(state: KeyState, journaled: Row | None, session: Row | None) -> Conversation:
    return Conversation(
        key=state.key,
        platform=platform_of(state.key),
        state=state,
        waiting=max(state.waiting, journaled["waiting"] if journaled is not None else 0),
        attempts=max(state.attempts, journaled["attempts"] if journaled is not None else 0),
        oldest=moment(journaled["oldest"]) if journaled is not None else None,
        title=session["title"] if session is not None else None,
        updated_at=moment(session["updated_at"]) if session is not None else None,
    )


def _matches(one: Conversation, query: ConversationQuery) -> bool:
    if query.user is not None and one.updated_at is None and f"u={escape(query.user)}" not in one.key.split(":"):
        return False
    if query.state is not None and one.state.state is not query.state:
        return False
    if query.older_than is not None and one.waited_ms <= query.older_than.total_seconds() * 1000:
        return False
    return query.more_attempts_than is None or one.attempts > query.more_attempts_than
