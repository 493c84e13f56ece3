"""How a Slack app is set up: auth.test says who it is. Where events go is entered at Slack."""

from __future__ import annotations

from collections.abc import Sequence

from producers.connecting import Connect, PersonQuestion, Question
from shared.finding import Finding, ok, warn
from shared.platforms.slack import (
    APP_TOKEN_FORM,
    BOT_TOKEN_FORM,
    NAME,
    SIGNING_SECRET_FORM,
    USER_ID_FORM,
    SlackSettings,
)
from shared.platforms.slack_api import open_web_api


class SlackConnect(Connect[SlackSettings]):
    """By Socket Mode with an app token, by webhook with a signing secret."""

    steps = (
        "At https://api.slack.com/apps choose Create New App, From a manifest, and paste docs/slack-manifest.yaml.",
        "Install App: install it to your workspace. The bot token, xoxb-…, appears.",
        "Basic Information, App-Level Tokens: generate one with the scope connections:write, xapp-….",
    )
    questions = (
        Question(
            "bot_token",
            "The bot user's token",
            "xoxb-…, under Install App",
            secret=True,
            form=BOT_TOKEN_FORM,
            looks="xoxb- and letters, digits and hyphens",
        ),
        Question(
            "app_token",
            "The app-level token, for Socket Mode",
            "xapp-…, under Basic Information; leave it empty to be told by webhook",
            secret=True,
            needed=False,
            form=APP_TOKEN_FORM,
            looks="xapp- and letters, digits and hyphens",
        ),
        Question(
            "signing_secret",
            "The signing secret, for the webhook",
            "under Basic Information",
            secret=True,
            form=SIGNING_SECRET_FORM,
            looks="16 or more letters and digits",
            unless="app_token",
        ),
    )
    person = PersonQuestion(
        "Your own member id", "in Slack: your profile, Copy member ID", USER_ID_FORM, "U or W and capitals and digits"
    )
    address_is_for = "you enter it at Slack, which posts events there"

    def wants_address(self, block: SlackSettings) -> bool:
        return bool(block.signing_secret)

    async def check(self, block: SlackSettings) -> Sequence[Finding]:
        async with open_web_api(block) as api:
            me = await api.me()
            found = [ok(NAME, f"Slack knows the bot token: @{me.name}, id {me.user}, of team {me.team}")]
            if block.app_token is not None:
                await api.socket_url(block.app_token)
                found.append(ok(NAME, "Slack lets the app token open a Socket Mode connection"))
        return found

    async def set_webhook(self, block: SlackSettings, url: str | None) -> Sequence[Finding]:
        if url is None:
            return ()
        fix = (
            f"start Keyturn there; then, at https://api.slack.com/apps, enter {url} as request URL under Event "
            "Subscriptions, under Interactivity and for each slash command"
        )
        return (warn(NAME, "only you can tell Slack where to post events", fix),)

    async def greet(self, block: SlackSettings, to: str, text: str) -> None:
        async with open_web_api(block) as api:
            await api.call("chat.postMessage", {"channel": to, "text": text})


CONNECT = SlackConnect()
