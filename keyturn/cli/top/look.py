"""One look of `top`: the status of the deployment and the conversations at work, read as the dashboard reads them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import redis

from shared.errors import PipelineError
from shared.pipeline import Pipeline
from shared.reading.conversation_query import ConversationQuery
from shared.reading.conversations import Conversation, FoundConversations, find_conversations
from shared.reading.overview import in_time, overview
from shared.reading.stage_times import stage_times
from shared.reading.status import DeploymentStatus, status_of
from shared.value import value

MOST = 200  # conversations, the longest wait first


@value
class TopLook:
    """What `top` saw. `trouble` says why there are no conversations, where a store that would know does not answer."""

    status: DeploymentStatus
    conversations: tuple[Conversation, ...]
    complete: bool
    trouble: str = ""


async def look(pipe: Pipeline, query: ConversationQuery) -> TopLook:
    """Look once. A store that is away is named in the verdict, and what it holds is left out."""
    seen, stages = await asyncio.gather(overview(pipe), in_time(stage_times(pipe.store)))
    status = status_of(seen, datetime.now(UTC), stages)
    found, trouble = FoundConversations((), complete=False), ""
    if status.redis_away or status.database_away:
        trouble = "conversations are not known while a store is away"
    else:
        try:
            found = await find_conversations(pipe, query, MOST, at_work=True)
        except (PipelineError, redis.RedisError) as error:
            trouble = f"conversations are not known: {error}"
    return TopLook(status, found.conversations, found.complete, trouble)
