"""Slack's token goes to Slack's own hosts only."""

from __future__ import annotations

from typing import cast

import pytest
from pydantic import SecretStr
from yarl import URL

from shared.errors import Undeliverable
from shared.http_client import HttpClient
from shared.platforms.slack_api import WebApi


class Opened:
    def __init__(self) -> None:
        self.urls: list[str] = []

    def get_stream(self, url: URL, headers: dict[str, str], *, seconds: float) -> None:
        self.urls.append(str(url))


@pytest.mark.parametrize(
    ("address", "is_slacks"),
    [
        ("https://files.slack.com/files-pri/T1-F1/a.png", True),
        ("https://slack-files.com/T1-F1", True),
        ("https://files.slack-gov.com/files-pri/T1-F1/a.png", True),  # GovSlack
        ("http://files.slack-gov.com/files-pri/T1-F1/a.png", False),
        ("https://slack-gov.com.example.org/a.png", False),
        ("https://notslack-gov.com/a.png", False),
    ],
)
def test_a_file_is_fetched_from_slack_and_govslack_and_from_nowhere_else(address: str, is_slacks: bool) -> None:
    opened = Opened()
    api = WebApi(cast(HttpClient, opened), "https://slack-gov.com/api", SecretStr("xoxb-1"))
    if is_slacks:
        api.download(address, 1)
        assert opened.urls == [address]
    else:
        with pytest.raises(Undeliverable):
            api.download(address, 1)
        assert opened.urls == []
