"""Telegram's facts and settings, and the forms in which both halves write Telegram's own things."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator, model_validator

from shared.finding import Finding, counted, ok
from shared.platforms.facts import (
    ButtonLimits,
    Facts,
    Limit,
    Markup,
    MediaLimits,
    PreviewLimits,
    SendBudget,
    SendRate,
    utf16_units,
)
from shared.platforms.settings import ChatSettings
from shared.setting_values import EVERYBODY, Secrets

NAME = "telegram"
SPOKEN_KINDS = ("message", "channel_post")  # edits, reactions and the rest would only be ignored
PRESSED_KIND = "callback_query"  # a button below a message of ours
UPDATE_KINDS = (*SPOKEN_KINDS, PRESSED_KIND)
FILE_SCHEME = "tg-file:"  # before a file id: the address of a file that Telegram keeps
DIRECT_TOPIC = "direct:"  # before a topic id: a topic of a channel's direct messages, which is no forum topic
TOKEN_FORM = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]{1,200}")
_ACCOUNT = re.compile(r"[a-z0-9_-]{1,64}")
USER_ID_FORM = re.compile(r"-?[0-9]{1,20}")  # negative: a channel or group that speaks as itself
_WEBHOOK_SECRET = re.compile(r"[A-Za-z0-9_-]{1,256}")


class TelegramBot(BaseModel):
    """A further Telegram bot. What it does not have is as in TELEGRAM."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    token: SecretStr
    """As TELEGRAM__TOKEN."""
    webhook_secret: Secrets = ()
    """As TELEGRAM__WEBHOOK_SECRET; the updates of this bot come to /webhooks/telegram/<account>."""
    api_url: str | None = None
    """As TELEGRAM__API_URL."""


class TelegramSettings(ChatSettings):
    """A Telegram bot. With a webhook secret it is told of updates, without one `keyturn listen telegram` asks for them."""

    PREFIX = "TELEGRAM"
    NEEDS = ("TOKEN",)

    token: SecretStr | None = None
    """What @BotFather gave: `<bot id>:<secret>`."""
    webhook_secret: Secrets = ()
    """The `secret_token` of setWebhook; list two to rotate. Unset: no webhook is mounted, and `up` polls."""
    api_url: str = "https://api.telegram.org"
    """Where the Bot API is: Telegram's, a Bot API server of your own, or a stand-in."""
    bots: dict[str, TelegramBot] = Field(default_factory=dict)
    """Further bots by account: `TELEGRAM__BOTS__<ACCOUNT>__TOKEN`. A conversation belongs to the bot that it was begun with."""

    @field_validator("allowed_users", "admin_users")
    @classmethod
    def _are_numbers(cls, entries: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        for place, entry in enumerate(entries, 1):
            if not USER_ID_FORM.fullmatch(entry) and (entry != EVERYBODY or info.field_name != "allowed_users"):
                name = f"TELEGRAM__{str(info.field_name).upper()}"
                raise ValueError(f"{name}: entry {place} is no Telegram id: a number, as the log shows it, and no name")
        return entries

    @model_validator(mode="after")
    def _fits(self) -> TelegramSettings:
        for account, bot in self.accounts.items():
            assert bot.token is not None
            if not TOKEN_FORM.fullmatch(bot.token.get_secret_value()):
                raise ValueError("TELEGRAM__TOKEN is digits, a colon and a secret, as @BotFather gave it")
            if account and not _ACCOUNT.fullmatch(account):
                raise ValueError("TELEGRAM__BOTS: an account is a lower-case word")
        if len({bot.token for bot in self.accounts.values()}) < len(self.accounts):
            raise ValueError("TELEGRAM__BOTS: two accounts have the same token")
        if self.token is None and (self.webhook_secret or (self.enabled and not self.bots)):
            needy = "ENABLED" if self.enabled else "WEBHOOK_SECRET"
            raise ValueError(f"TELEGRAM__{needy} needs TELEGRAM__TOKEN: nothing could be answered")
        secrets = [*self.webhook_secret, *(secret for bot in self.bots.values() for secret in bot.webhook_secret)]
        if not all(_WEBHOOK_SECRET.fullmatch(secret.get_secret_value()) for secret in secrets):
            raise ValueError("TELEGRAM__WEBHOOK_SECRET is 1 to 256 of A-Z, a-z, 0-9, _ and -, as Telegram demands")
        if not all(url.startswith(("https://", "http://")) for url in self._api_urls()):
            raise ValueError("TELEGRAM__API_URL is an http(s) address")
        return self

    def _api_urls(self) -> tuple[str, ...]:
        return (self.api_url, *(bot.api_url for bot in self.bots.values() if bot.api_url is not None))

    @property
    def accounts(self) -> dict[str, TelegramSettings]:
        """The settings of each bot, by account. The one that TELEGRAM__TOKEN belongs to has no name."""
        found = {"": self.model_copy(update={"bots": {}})} if self.token is not None else {}
        for account, bot in self.bots.items():
            own = {"token": bot.token, "webhook_secret": bot.webhook_secret, "bots": {}}
            found[account] = self.model_copy(update={**own, "api_url": bot.api_url or self.api_url})
        return found

    @property
    def on(self) -> bool:
        return (self.token is not None or bool(self.bots)) and self.enabled is not False

    @property
    def listens(self) -> bool:
        """Whether some bot's updates are fetched rather than brought."""
        return self.on and not all(bot.webhook_secret for bot in self.accounts.values())

    @property
    def addresses(self) -> Mapping[str, str]:
        return {f"{NAME} {account}".strip(): bot.api_url for account, bot in self.accounts.items()}

    def findings(self) -> Iterator[Finding]:
        if self.on:
            told = sum(bool(bot.webhook_secret) for bot in self.accounts.values())
            ways = [f"{counted(told, 'bot is', 'bots are')} told by webhook"] if told else []
            if asked := len(self.accounts) - told:
                ways.append(f"{counted(asked, 'bot is', 'bots are')} heard by `keyturn listen {NAME}`")
            yield ok(NAME, ", ".join(ways))


FACTS = Facts(
    name=NAME,
    title="Telegram",
    settings=TelegramSettings,
    receives=True,
    listens=True,
    connects=True,
    redelivers=True,
    cut_text=Limit(4000, utf16_units),  # programs cut at 4,096 at most, before a word or a line where there is one
    text_limit=Limit(4096, utf16_units),  # markup does not count, and only shortens
    markup=Markup.HTML,
    typing_seconds=4.0,  # it shows for five
    can_edit=True,
    buttons=ButtonLimits(24, Limit(60, utf16_units)),  # it takes 100; phones show some 30 units of a row
    preview=PreviewLimits(3.0),  # a group takes 20 messages a minute
    can_thread=True,
    media=MediaLimits(fetched=20_000_000, sent=50_000_000),
    hides_ids=True,
    chat_type_of=lambda chat: "group" if chat.startswith("-") else "dm",
    send_budget=SendBudget(
        bot=SendRate(30, burst=10),
        chat=SendRate(1, burst=5),
        group=SendRate(15, 60, burst=5),  # a group takes 20 in any minute
    ),
)
