"""Discord's facts and settings, and the forms in which both halves write Discord's own things."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b

from pydantic import SecretStr, ValidationInfo, field_validator, model_validator

from shared.finding import Finding, ok, warn
from shared.platforms.facts import (
    ButtonLimits,
    Facts,
    Idempotency,
    Limit,
    MediaLimits,
    PreviewLimits,
    SendBudget,
    SendRate,
    utf16_units,
)
from shared.platforms.settings import ChatSettings
from shared.setting_values import EVERYBODY
from shared.value import value

NAME = "discord"
TOKEN_FORM = re.compile(r"[A-Za-z0-9_-]{2,100}\.[A-Za-z0-9_-]{1,100}\.[A-Za-z0-9_-]{1,200}")
SNOWFLAKE_FORM = re.compile(r"[0-9]{1,20}")
PUBLIC_KEY_FORM = re.compile(r"[0-9a-fA-F]{64}")
_INTERACTION = "interaction:"


@value
class InteractionAnswer:
    """Where the answer to an interaction goes. Its text form is what an Inbound has for the id of its message."""

    application: str
    token: str

    def __str__(self) -> str:
        return f"{_INTERACTION}{self.application}:{self.token}"

    @classmethod
    def parse(cls, message: str | None) -> InteractionAnswer | None:
        """The interaction that a message id stands for; None for an ordinary message."""
        if message is None or not message.startswith(_INTERACTION):
            return None
        application, _, token = message.removeprefix(_INTERACTION).partition(":")
        return cls(application, token)


class DiscordSettings(ChatSettings):
    """A Discord bot. `keyturn listen discord` holds its gateway; with a public key, interactions come by webhook."""

    PREFIX = "DISCORD"
    NEEDS = ("TOKEN",)

    token: SecretStr | None = None
    """The bot's token, from the developer portal."""
    public_key: str | None = None
    """The application's public key, 64 hexadecimal digits. Set: interactions are taken at /webhooks/discord."""
    api_url: str = "https://discord.com/api/v10"
    """Where Discord's HTTP API is: Discord's, or a stand-in."""
    cdn_url: str | None = None
    """A stand-in for the servers that Discord keeps attachments on. Unset: those that messages name."""
    gateway_url: str | None = None
    """Where the gateway is. Unset: the HTTP API is asked, as Discord wants it."""
    message_content: bool = True
    """Ask for the text of every message, which the developer portal must allow. False: only direct messages and messages that
    mention the bot have a text."""

    @field_validator("allowed_users", "admin_users")
    @classmethod
    def _are_snowflakes(cls, entries: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        for place, entry in enumerate(entries, 1):
            if not SNOWFLAKE_FORM.fullmatch(entry) and (entry != EVERYBODY or info.field_name != "allowed_users"):
                name = f"DISCORD__{str(info.field_name).upper()}"
                raise ValueError(f"{name}: entry {place} is no Discord id: a number, as the log shows it, and no name")
        return entries

    @model_validator(mode="after")
    def _fits(self) -> DiscordSettings:
        if self.token is None and (self.enabled or self.public_key is not None):
            needy = "ENABLED" if self.enabled else "PUBLIC_KEY"
            raise ValueError(f"DISCORD__{needy} needs DISCORD__TOKEN: nothing could be answered")
        if self.token is not None and not TOKEN_FORM.fullmatch(self.token.get_secret_value()):
            raise ValueError(
                "DISCORD__TOKEN is three words joined by dots, as the developer portal gave it, without `Bot`"
            )
        if self.public_key is not None and not PUBLIC_KEY_FORM.fullmatch(self.public_key):
            raise ValueError("DISCORD__PUBLIC_KEY is 64 hexadecimal digits, as the developer portal shows it")
        if not self.api_url.startswith(("https://", "http://")):
            raise ValueError("DISCORD__API_URL is an http(s) address")
        if self.cdn_url is not None and not self.cdn_url.startswith(("https://", "http://")):
            raise ValueError("DISCORD__CDN_URL is an http(s) address")
        if self.gateway_url is not None and not self.gateway_url.startswith(("wss://", "ws://")):
            raise ValueError("DISCORD__GATEWAY_URL is a ws(s) address")
        return self

    @property
    def on(self) -> bool:
        return self.token is not None and self.enabled is not False

    @property
    def listens(self) -> bool:
        """Always, where it is on: only the gateway brings ordinary messages."""
        return self.on

    @property
    def addresses(self) -> Mapping[str, str]:
        gateway = {f"{NAME} gateway": self.gateway_url} if self.gateway_url is not None else {}
        return {NAME: self.api_url, **gateway} if self.token is not None else {}

    @property
    def credential(self) -> str:
        """An id of the bot, no secret: its user id, which its token begins with."""
        assert self.token is not None
        token = self.token.get_secret_value()
        first = token.partition(".")[0]
        try:
            id = base64.urlsafe_b64decode(first + "=" * (-len(first) % 4)).decode("ascii")
        except (binascii.Error, UnicodeDecodeError):
            id = ""
        return id if SNOWFLAKE_FORM.fullmatch(id) else blake2b(token.encode(), digest_size=8).hexdigest()

    def findings(self) -> Iterator[Finding]:
        if not self.on:
            return
        told = "by webhook" if self.public_key is not None else "by the gateway"
        yield ok(NAME, f"messages come by `keyturn listen {NAME}`, interactions {told}")
        if not self.message_content and (not self.require_mention or self.free_chats):
            fix = "set DISCORD__MESSAGE_CONTENT=true and allow the Message Content intent in the developer portal"
            yield warn(f"{NAME} text", "messages that do not mention the bot come without text and are ignored", fix)


FACTS = Facts(
    name=NAME,
    title="Discord",
    settings=DiscordSettings,
    receives=True,
    listens=True,
    connects=True,
    redelivers=False,  # a resumed session replays what was missed; a lost one does not
    text_limit=Limit(2000, utf16_units),  # the unit is not documented: UTF-16 units are never fewer than characters
    typing_seconds=8.0,  # it shows for ten
    idempotency=Idempotency.NATIVE,  # by nonce, for some minutes
    can_edit=True,
    buttons=ButtonLimits(25, Limit(80, utf16_units)),  # five rows of five
    preview=PreviewLimits(1.5),  # five changes in five seconds
    can_thread=True,
    prompt_note=(
        "You have no access to the Discord API: you cannot search it, read its channels or manage it. "
        "Say so when asked to."
    ),
    media=MediaLimits(fetched=500_000_000, sent=10_000_000),
    send_budget=SendBudget(
        bot=SendRate(50, burst=10),
        chat=SendRate(5, 5, burst=5),  # as the headers of answers usually say
    ),
)
