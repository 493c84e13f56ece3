"""Tells a chat that an answer to it was given up after every try failed.

The notice is one send that nobody records: the answer is a dead letter by then, so a crash, or a second failure, costs the notice
and nothing else.
"""

from __future__ import annotations

from dataclasses import replace

from shared import log
from shared.background import survived
from shared.errors import PipelineError
from shared.failpoints import reach
from shared.messages import Part
from shared.platforms import FOR_PROGRAMS
from workers.delivery.sender import Sender

TEXT = "Sorry, an answer of mine did not get through to this chat, as far as I know. The operator can send it again."


async def tell_of_failure(sender: Sender, part: Part) -> None:
    """Try once to say that the part did not arrive. Programs are not told, and neither is a chat where nobody asked."""
    if not part.is_answer or part.to.platform in FOR_PROGRAMS:
        return
    key = f"{part.idempotency_key}_failed"
    bare = replace(part, media=(), choices=(), edits=None, draft=None, shown=0)  # no button without its question
    # Its place in the answer stays: a first part may replace something.
    notice = replace(bare, idempotency_key=key, text=TEXT)
    reach("deliver.before_failure_notice")
    try:
        await sender.send(notice)
    except PipelineError as error:
        log.get().info("failure notice not sent", part=part.idempotency_key, error=type(error).__name__)
    except Exception as error:
        survived("delivery", "a sender failed", error, platform=part.to.platform, part=key)
