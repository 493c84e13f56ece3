"""Who shares a conversation: by the settings for all groups, and by the list of chats that keep one in common."""

from __future__ import annotations

import pytest

from shared.messages import Source
from shared.routing import Sharing


@pytest.mark.parametrize("sharing", [Sharing(), Sharing(thread_per_user=True)])
def test_the_members_of_a_listed_chat_share_one_conversation_whatever_the_settings_say(sharing: Sharing) -> None:
    listed = Sharing(sharing.group_per_user, sharing.thread_per_user, ("telegram:-100",))
    for thread in (None, "17"):
        keys = {
            str(listed.key_of(Source("telegram", "-100", "group", user=user, thread=thread), "main")) for user in "ab"
        }
        assert keys == {f"agent:main:telegram:group:-100{':t=17' if thread else ''}"}


def test_other_chats_are_not_touched_by_the_list() -> None:
    listed = Sharing(shared_chats=("telegram:-100",))
    for source in (
        Source("telegram", "-200", "group", user="a"),
        Source("slack", "-100", "group", user="a"),
        Source("telegram", "-100", user="a"),
    ):
        assert listed.key_of(source, "main") == Sharing().key_of(source, "main")
