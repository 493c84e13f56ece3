"""Slack's facts and settings, and the forms in which both halves write Slack's own things."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pydantic import SecretStr, ValidationInfo, field_validator, model_validator

from shared.finding import Finding, ok, warn
from shared.platforms.facts import (
    ButtonLimits,
    Facts,
    Idempotency,
    Limit,
    Markup,
    MediaLimits,
    PreviewLimits,
    SendBudget,
    SendRate,
    utf16_units,
)
from shared.platforms.settings import ChatSettings
from shared.setting_values import EVERYBODY, Names, Secrets

NAME = "slack"
FILE_SCHEME = "slack-file:"  # before a file id: the address of a file that Slack keeps
TIMESTAMP = re.compile(r"[0-9]{1,12}\.[0-9]{1,9}")  # the id of a message within its channel; never a number
BOT_TOKEN_FORM = re.compile(r"(?:xoxe\.)?xoxb-[A-Za-z0-9-]{1,300}")
APP_TOKEN_FORM = re.compile(r"xapp-[A-Za-z0-9-]{1,300}")
SIGNING_SECRET_FORM = re.compile(r"[A-Za-z0-9_-]{16,256}")
USER_ID_FORM = re.compile(r"[UW][A-Z0-9]{1,30}")


class SlackSettings(ChatSettings):
    """A Slack app. With a signing secret Slack posts events to us, with an app token `keyturn listen slack` fetches them."""

    PREFIX = "SLACK"
    NEEDS = ("BOT_TOKEN", "APP_TOKEN")

    bot_token: SecretStr | None = None
    """The bot user's token, `xoxb-…`: what everything is sent with."""
    signing_secret: Secrets = ()
    """The app's signing secret; list two to rotate. Unset: no webhook is mounted."""
    app_token: SecretStr | None = None
    """An app-level token, `xapp-…`, with `connections:write`. Set: `up` and `listen` hold a Socket Mode connection."""
    api_url: str = "https://slack.com/api"
    """Where the Web API is: Slack's, or a stand-in."""
    ask_commands: Names = ("/ask",)
    """Slash commands that only ask: `/ask hello` is the message "hello". Others are commands to Keyturn, such as `/new`."""
    reply_in_thread: bool = True
    """In channels, an answer opens a thread under its message, and the thread is a conversation of its own. False: answers
    stand in the channel, and each person has one conversation there."""

    @field_validator("allowed_users", "admin_users")
    @classmethod
    def _are_ids(cls, entries: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        for place, entry in enumerate(entries, 1):
            if not USER_ID_FORM.fullmatch(entry) and (entry != EVERYBODY or info.field_name != "allowed_users"):
                name = f"SLACK__{str(info.field_name).upper()}"
                raise ValueError(f"{name}: entry {place} is no Slack id: U or W and capitals, as the log shows it")
        return entries

    @field_validator("ask_commands")
    @classmethod
    def _begin_with_a_slash(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f"/{entry.removeprefix('/')}" for entry in entries)

    @model_validator(mode="after")
    def _fits(self) -> SlackSettings:
        if self.bot_token is None and (needy := self._needs_token()):
            raise ValueError(f"SLACK__{needy} needs SLACK__BOT_TOKEN: nothing could be answered")
        if self.bot_token is not None and not BOT_TOKEN_FORM.fullmatch(self.bot_token.get_secret_value()):
            raise ValueError("SLACK__BOT_TOKEN begins with xoxb-: the bot user's token, of the app's OAuth page")
        if self.app_token is not None and not APP_TOKEN_FORM.fullmatch(self.app_token.get_secret_value()):
            raise ValueError("SLACK__APP_TOKEN begins with xapp-: an app-level token, of the app's basic information")
        if not all(SIGNING_SECRET_FORM.fullmatch(secret.get_secret_value()) for secret in self.signing_secret):
            raise ValueError("SLACK__SIGNING_SECRET is 16 or more letters and digits, of the app's basic information")
        if not self.api_url.startswith(("https://", "http://")):
            raise ValueError("SLACK__API_URL is an http(s) address")
        return self

    def _needs_token(self) -> str:
        if self.enabled:
            return "ENABLED"
        if self.signing_secret:
            return "SIGNING_SECRET"
        return "APP_TOKEN" if self.app_token is not None else ""

    @property
    def on(self) -> bool:
        return self.bot_token is not None and self.enabled is not False

    @property
    def listens(self) -> bool:
        """Whether events are fetched by Socket Mode."""
        return self.on and self.app_token is not None

    @property
    def addresses(self) -> Mapping[str, str]:
        return {NAME: self.api_url} if self.bot_token is not None else {}

    def findings(self) -> Iterator[Finding]:
        if not self.on:
            return
        ways = [f"posts to /webhooks/{NAME}"] if self.signing_secret else []
        ways += [f"is listened to by `keyturn listen {NAME}`"] if self.listens else []
        if ways:
            yield ok(NAME, f"Slack {' and '.join(ways)}")
        else:
            fix = "set KEYTURN_SLACK__APP_TOKEN (Socket Mode) or KEYTURN_SLACK__SIGNING_SECRET (webhook)"
            yield warn(NAME, "replies can be sent, and no message comes in", fix)


def escaped_units(text: str) -> int:
    """UTF-16 units of a text whose `&`, `<` and `>` are escaped: nobody says whether Slack counts before or after."""
    return utf16_units(text) + 4 * text.count("&") + 3 * (text.count("<") + text.count(">"))


FACTS = Facts(
    name=NAME,
    title="Slack",
    settings=SlackSettings,
    receives=True,
    listens=True,
    connects=True,
    redelivers=False,  # three times within six minutes, and refusals count against the app: a full chat is set aside
    text_limit=Limit(4000, escaped_units),  # more is cut in several messages by Slack, and refused in an edit
    markup=Markup.MRKDWN,
    idempotency=Idempotency.NATIVE,  # of our sender's making: it looks for a part that it tried before
    can_edit=True,
    buttons=ButtonLimits(25, Limit(75), Limit(2800, escaped_units)),  # beside buttons, a text has 3,000 characters
    preview=PreviewLimits(1.5),  # 50 changes a minute
    can_thread=True,
    media=MediaLimits(fetched=1_000_000_000, sent=1_000_000_000),
    prompt_note=(
        "You have no access to the Slack API: you cannot search it, read its channels or manage it. Say so when asked to. "
        "You see the current message's own content only. Writing <@USER_ID> mentions somebody."
    ),
    chat_type_of=lambda chat: "dm" if chat.startswith("D") else "channel",
    send_budget=SendBudget(
        chat=SendRate(1, burst=5),
        edits=SendRate(50, 60, burst=10),  # chat.update, of the app in a workspace
    ),
)
