"""A block per platform: its secrets, its addresses, and who may talk there."""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator, model_validator

from shared.settings.people import EVERYBODY
from shared.settings.values import Names, Secrets

_BOT_TOKEN = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]{1,200}")
_ACCOUNT = re.compile(r"[a-z0-9_-]{1,64}")
_USER_ID = re.compile(r"-?[0-9]{1,20}")  # negative: a channel or group that speaks as itself
_BOT_SECRET = re.compile(r"[A-Za-z0-9_-]{1,256}")


class Platform(BaseModel):
    """What every platform block has."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    senders_choose_ids: ClassVar[bool] = False
    """Whether whoever sends a message also makes up the user id in it. Bare ids of global lists do not count there."""

    enabled: bool | None = None
    """Unset: on when its secrets are there. True without them: the process refuses to start."""
    allowed_users: Names = ()
    """Platform user ids that may talk to the bot here."""
    admin_users: Names = ()
    """Platform user ids that may give every command here."""
    home_channel: str | None = None
    """Where messages go that answer nobody, such as scheduled ones."""
    require_mention: bool = True
    """In groups, only messages that name the bot are answered."""
    free_chats: Names = ()
    """Ids of groups where messages are answered that do not name the bot."""


class Webhook(Platform):
    """The generic signed webhook (Standard Webhooks)."""

    senders_choose_ids = True

    secrets: Secrets = ()
    """`whsec_…` secrets. Any of them verifies a request, the first signs the callbacks; list two to rotate."""
    callback_url: str | None = Field(default=None, repr=False)
    """Where replies are posted. Unset: replies are kept and not sent; `keyturn sessions show` shows them."""
    callback_timeout_seconds: float = Field(default=15, gt=0)
    """How long a callback may take before it counts as unanswered."""


class Api(Platform):
    """The HTTP API under /v1."""

    senders_choose_ids = True

    keys: Secrets = ()
    """Bearer keys. Unset: the API answers 401 to everybody."""


class TelegramBot(BaseModel):
    """A further Telegram bot. What it does not have is as in TELEGRAM."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    token: SecretStr
    """As TELEGRAM__TOKEN."""
    webhook_secret: Secrets = ()
    """As TELEGRAM__WEBHOOK_SECRET; the updates of this bot come to /webhooks/telegram/<account>."""
    api_url: str | None = None
    """As TELEGRAM__API_URL."""


class Telegram(Platform):
    """A Telegram bot. With a webhook secret it is told of updates, without one `keyturn listen telegram` asks for them."""

    token: SecretStr | None = None
    """What @BotFather gave: `<bot id>:<secret>`."""
    webhook_secret: Secrets = ()
    """The `secret_token` of setWebhook; list two to rotate. Unset: no webhook is mounted, and `up` polls."""
    api_url: str = "https://api.telegram.org"
    """Where the Bot API is: Telegram's, a Bot API server of your own, or a stand-in."""
    send_timeout_seconds: float = Field(default=30, gt=0)
    """How long a send may take before it counts as unanswered."""
    bots: dict[str, TelegramBot] = {}
    """Further bots by account: `TELEGRAM__BOTS__<ACCOUNT>__TOKEN`. A conversation belongs to the bot that it was begun with."""

    @field_validator("allowed_users", "admin_users")
    @classmethod
    def _are_numbers(cls, entries: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        for place, entry in enumerate(entries, 1):
            if not _USER_ID.fullmatch(entry) and (entry != EVERYBODY or info.field_name != "allowed_users"):
                name = f"TELEGRAM__{str(info.field_name).upper()}"
                raise ValueError(f"{name}: entry {place} is no Telegram id: a number, as the log shows it, and no name")
        return entries

    @model_validator(mode="after")
    def _fits(self) -> Telegram:
        for account, bot in self.accounts.items():
            assert bot.token is not None
            if not _BOT_TOKEN.fullmatch(bot.token.get_secret_value()):
                raise ValueError("TELEGRAM__TOKEN is digits, a colon and a secret, as @BotFather gave it")
            if account and not _ACCOUNT.fullmatch(account):
                raise ValueError("TELEGRAM__BOTS: an account is a lower-case word")
        if len({bot.token for bot in self.accounts.values()}) < len(self.accounts):
            raise ValueError("TELEGRAM__BOTS: two accounts have the same token")
        if self.token is None and (self.webhook_secret or (self.enabled and not self.bots)):
            needy = "ENABLED" if self.enabled else "WEBHOOK_SECRET"
            raise ValueError(f"TELEGRAM__{needy} needs TELEGRAM__TOKEN: nothing could be answered")
        secrets = [*self.webhook_secret, *(secret for bot in self.bots.values() for secret in bot.webhook_secret)]
        if not all(_BOT_SECRET.fullmatch(secret.get_secret_value()) for secret in secrets):
            raise ValueError("TELEGRAM__WEBHOOK_SECRET is 1 to 256 of A-Z, a-z, 0-9, _ and -, as Telegram demands")
        if not all(url.startswith(("https://", "http://")) for url in self._api_urls()):
            raise ValueError("TELEGRAM__API_URL is an http(s) address")
        return self

    def _api_urls(self) -> tuple[str, ...]:
        return (self.api_url, *(bot.api_url for bot in self.bots.values() if bot.api_url is not None))

    @property
    def accounts(self) -> dict[str, Telegram]:
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
    def polls(self) -> bool:
        """Whether some bot's updates are fetched rather than brought."""
        return self.on and not all(bot.webhook_secret for bot in self.accounts.values())
