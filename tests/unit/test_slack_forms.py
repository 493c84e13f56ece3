"""What Slack is asked for a part, in which form, and where an earlier attempt is looked for."""

from __future__ import annotations

from typing import Any, cast

import pytest

from shared.errors import Ambiguous, Transient, Undeliverable
from shared.messages import Media
from shared.platforms import slack_api
from shared.platforms.slack import FACTS, FILE_SCHEME
from shared.platforms.slack_api import WebApi
from tests.support.scripted_api import Scripted, a_part
from tests.support.uploads import no_files
from workers.delivery.slack import SlackSender


def slack(*answers: Any) -> tuple[SlackSender, Scripted]:
    api = Scripted(*answers)
    return SlackSender(cast(WebApi, api), no_files(FACTS), resend_unseen=False), api


POSTED = {"channel": "C1", "ts": "18.2"}


async def test_slack_is_told_where_and_carries_the_parts_key() -> None:
    sender, api = slack(POSTED, POSTED)
    assert (await sender.send(a_part("slack", "C1", "channel", thread="17.1"))).message_id == "C1:18.2"
    await sender.send(a_part("slack", "C1", "channel"))
    (method, fields), (_, second) = api.asked
    assert method == "chat.postMessage" and (fields["channel"], fields["thread_ts"]) == ("C1", "17.1")
    assert fields["metadata"] == {"event_type": "keyturn_part", "event_payload": {"key": "out_1"}}
    assert fields["unfurl_links"] is False and fields["unfurl_media"] is False and "mrkdwn" not in fields
    assert "thread_ts" not in second


async def test_slack_gets_plain_text_where_it_takes_no_marks() -> None:
    sender, api = slack(slack_api.SlackRefused("invalid_blocks"), POSTED)
    await sender.send(a_part("slack", "C1", text="**a** <b>"))
    assert api.asked[0][1]["text"] == "*a* &lt;b&gt;"
    assert (api.asked[1][1]["text"], api.asked[1][1]["mrkdwn"]) == ("**a** &lt;b&gt;", False)
    sender, api = slack(slack_api.SlackRefused("channel_not_found"))
    with pytest.raises(Undeliverable):
        await sender.send(a_part("slack", "C1"))
    assert len(api.asked) == 1


@pytest.mark.parametrize("edits", ["C9:16.1", "16.1"])
async def test_a_message_on_slack_is_changed_where_it_stands(edits: str) -> None:
    sender, api = slack(POSTED)
    await sender.edit(a_part("slack", "C1", edits=edits))
    [(method, fields)] = api.asked
    assert method == "chat.update"
    assert (fields["channel"], fields["ts"]) == ("C9" if ":" in edits else "C1", "16.1")


async def test_a_message_on_slack_that_cannot_be_changed_is_said_anew() -> None:
    sender, api = slack(slack_api.SlackRefused("cant_update_message"), POSTED)
    await sender.edit(a_part("slack", "C1", edits="16.1"))
    assert api.routes == ["chat.update", "chat.postMessage"]
    sender, _ = slack(Ambiguous("x"))
    with pytest.raises(Transient) as caught:
        await sender.edit(a_part("slack", "C1", edits="16.1"))
    assert type(caught.value) is Transient


async def test_a_picture_is_shown_on_slack_and_other_files_are_links() -> None:
    picture, other = Media("https://a/b.png", "image/png", "b"), Media("https://a/b.pdf", "application/pdf")
    sender, api = slack(POSTED, POSTED)
    await sender.send(a_part("slack", "C1", text="", media=(picture,)))
    await sender.send(a_part("slack", "C1", text="", media=(other,)))
    assert api.asked[0][1]["blocks"] == [{"type": "image", "image_url": "https://a/b.png", "alt_text": "b"}]
    assert api.asked[0][1]["text"] == "<https://a/b.png|b>"
    assert "blocks" not in api.asked[1][1] and api.asked[1][1]["text"] == "<https://a/b.pdf|file>"


async def test_a_picture_that_slack_cannot_fetch_is_a_link() -> None:
    picture = Media("https://a/b.png", "image/png")
    sender, api = slack(slack_api.SlackRefused("invalid_blocks"), POSTED)
    await sender.send(a_part("slack", "C1", text="", media=(picture,)))
    assert "blocks" in api.asked[0][1] and "blocks" not in api.asked[1][1]
    sender, api = slack(slack_api.SlackRefused("channel_not_found"), POSTED)
    with pytest.raises(Undeliverable):
        await sender.send(a_part("slack", "C1", text="", media=(picture,)))
    assert len(api.asked) == 1


async def test_a_file_that_slack_keeps_is_shown_by_its_address() -> None:
    kept = Media(f"{FILE_SCHEME}F1", "image/png")
    sender, api = slack({"file": {"permalink": "https://slack/F1"}}, POSTED)
    await sender.send(a_part("slack", "C1", text="", media=(kept,)))
    assert api.asked[0] == ("files.info", {"file": "F1"})
    assert api.asked[1][1]["text"] == "<https://slack/F1|file>" and "blocks" not in api.asked[1][1]
    answers: list[dict[str, Any]] = [{}, {"file": "F1"}, {"file": {}}]
    for unknown in answers:
        sender, api = slack(unknown)
        with pytest.raises(Undeliverable):
            await sender.send(a_part("slack", "C1", text="", media=(kept,)))


@pytest.mark.parametrize(("answer", "receipt"), [({"channel": "C1"}, ""), ({"ts": "1"}, ""), (POSTED, "C1:18.2")])
async def test_a_receipt_of_slack_is_channel_and_time_or_nothing(answer: Any, receipt: str) -> None:
    sender, _ = slack(answer)
    assert (await sender.send(a_part("slack", "C1"))).message_id == receipt


async def test_an_earlier_attempt_is_looked_for_on_slack_where_it_would_stand() -> None:
    def ours(key: str) -> dict[str, Any]:
        return {"ts": "17.9", "metadata": {"event_payload": {"key": key}}}

    tried = a_part("slack", "C1", "channel", attempts=1, thread="17.1", answers="1700000000.000100")
    sender, api = slack({"messages": ["words", {"ts": "1"}, ours("out_2"), ours("out_1")]})
    assert (await sender.send(tried)).message_id == "C1:17.9"
    assert api.asked == [
        (
            "conversations.replies",
            {
                "channel": "C1",
                "limit": 200,
                "include_all_metadata": "true",
                "oldest": "1700000000.000100",
                "ts": "17.1",
            },
        )
    ]
    sender, api = slack({"messages": {}}, POSTED)
    await sender.send(a_part("slack", "C1", "channel", attempts=1, answers="words"))
    assert api.routes == ["conversations.history", "chat.postMessage"] and "oldest" not in api.asked[0][1]
