"""An earlier attempt that Slack may have taken is looked for page by page, and no part of the search is taken for the whole."""

from __future__ import annotations

from typing import Any, cast

import pytest

from shared.errors import Undeliverable
from shared.messages import Part, Source
from shared.platforms.slack import FACTS
from shared.platforms.slack_api import WebApi
from tests.support.uploads import no_files
from workers.delivery.slack import PAGES, SlackSender

PART = Part(
    1, "out_1", "agent:main:slack:channel:C1", Source("slack", "C1", "channel"), ("m1",), 1, 1, "hi", attempts=1
)
OURS = {"ts": "17.1", "metadata": {"event_payload": {"key": "out_1"}}}


class Paged:
    """A channel of so many pages, of which one has our message."""

    def __init__(self, pages: int, ours: int | None = None, *, cursors: bool = True) -> None:
        self._pages, self._ours, self._cursors = pages, ours, cursors
        self.asked = 0
        self.posted = 0

    async def ask(self, method: str, fields: dict[str, Any]) -> dict[str, Any]:
        self.asked += 1
        page = int(fields.get("cursor", 0))
        more = page + 1 < self._pages
        cursor = str(page + 1) if more and self._cursors else ""
        found = [{"ts": "16.0"}, *([OURS] if page == self._ours else [])]
        return {"messages": found, "has_more": more, "response_metadata": {"next_cursor": cursor}}

    async def call(self, method: str, fields: dict[str, Any]) -> dict[str, Any]:
        self.posted += 1
        return {"channel": "C1", "ts": "18.2"}


def sender(slack: Paged, *, resend_unseen: bool = False) -> SlackSender:
    uploads = no_files(FACTS)
    return SlackSender(cast(WebApi, slack), uploads, resend_unseen=resend_unseen)


async def test_an_earlier_attempt_is_found_though_much_was_said_since() -> None:
    slack = Paged(PAGES + 9, ours=PAGES - 1)
    assert (await sender(slack).send(PART)).message_id == "C1:17.1"
    assert slack.posted == 0


async def test_a_part_that_is_on_no_page_is_sent() -> None:
    slack = Paged(PAGES)
    assert (await sender(slack).send(PART)).message_id == "C1:18.2"
    assert slack.asked == PAGES


@pytest.mark.parametrize("slack", [Paged(PAGES + 1), Paged(2, cursors=False)], ids=["too much", "no cursor"])
async def test_where_not_everything_was_looked_at_the_policy_decides(slack: Paged) -> None:
    with pytest.raises(Undeliverable, match="may have arrived"):
        await sender(slack).send(PART)
    assert slack.posted == 0 and slack.asked <= PAGES
    await sender(slack, resend_unseen=True).send(PART)
    assert slack.posted == 1
