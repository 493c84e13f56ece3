"""Telegram messages that answer a post which nobody signed are understood like any other."""

from __future__ import annotations

from typing import Any

import pytest

from producers.telegram.normalise import TelegramMe, normalise
from shared.messages import Inbound

BOT = TelegramMe("99", "helper_bot")


def answering(reply: dict[str, Any]) -> Inbound:
    chat = {"id": -100, "type": "supergroup", "title": "Team"}
    about = {"message_id": 2, "date": 1, "chat": chat, "from": {"id": 11, "first_name": "Ann"}, "text": "hello"}
    post = {"message_id": 1, "date": 1, "chat": chat, **reply}
    found = normalise({"update_id": 1, "message": {**about, "reply_to_message": post}}, BOT, received_at=1_000)
    assert isinstance(found, Inbound)
    return found


@pytest.mark.parametrize("sender", [{}, {"from": None}])
def test_an_answer_to_a_post_without_a_sender_is_not_meant_for_the_bot(sender: dict[str, Any]) -> None:
    found = answering({"text": "news", **sender})
    assert (found.text, found.mentioned) == ("hello", False)


def test_an_answer_to_the_bot_is_meant_for_it_and_needs_no_quotation() -> None:
    found = answering({"text": "I said so", "from": {"id": 99, "is_bot": True, "first_name": "Helper"}})
    assert found.mentioned and found.earlier is None


def test_an_answer_to_somebody_else_says_what_they_said() -> None:
    found = answering({"text": "news", "from": {"id": 12, "first_name": "Bob", "last_name": "Ray"}})
    assert (found.mentioned, found.earlier, found.earlier_by) == (False, "Bob Ray: news", "12")
