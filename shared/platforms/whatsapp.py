"""WhatsApp's facts and settings (Cloud API), and the forms in which both halves write WhatsApp's own things."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pydantic import Field, SecretStr, ValidationInfo, field_validator, model_validator

from shared.finding import Finding, counted, ok, warn
from shared.messages import Part, key_digest
from shared.platforms.facts import ButtonLimits, Facts, Limit, Markup, MediaLimits, SendBudget, SendRate, utf16_units
from shared.platforms.settings import ChatSettings
from shared.setting_values import EVERYBODY, Names, Secrets

NAME = "whatsapp"
FILE_SCHEME = "wa-media:"  # before a media id: the address of a file that WhatsApp keeps for about 30 days
GROUP = "group:"  # before a group id: people are addressed in another way
SECRET_CHARACTERS = 16  # a shorter verify token can be guessed
USER_ID_FORM = re.compile(r"[0-9]{5,20}|[A-Z]{2}\.[A-Za-z0-9.]{1,128}")  # a number, or an id that hides the number
NUMBER_ID_FORM = re.compile(r"[A-Za-z0-9_-]{1,64}")
ACCESS_TOKEN_FORM = re.compile(r"[\x21-\x7e]{1,4096}")
_PART = re.compile(r"keyturn-([0-9]{1,18})(?:-([0-9a-f]{16}))?")  # older versions sent the number alone


class WhatsAppSettings(ChatSettings):
    """WhatsApp through Meta's Cloud API. The four secrets and ids belong together: all of them, or none."""

    PREFIX = "WHATSAPP"
    NEEDS = ("ACCESS_TOKEN", "APP_SECRET", "VERIFY_TOKEN", "PHONE_NUMBER_ID")

    access_token: SecretStr | None = None
    """The token of a system user that may send for the number. One that expires stops all replies when it does."""
    app_secret: Secrets = ()
    """The app's secret, which signs every request of Meta's; list two to rotate."""
    verify_token: SecretStr | None = None
    """The word that Meta shows once, when the webhook's address is entered; choose a random one."""
    phone_number_id: str | None = None
    """The id of the bot's number, as Meta shows it: not the number itself."""
    further_phone_number_ids: Names = ()
    """Ids of further numbers that the token may send for. A conversation belongs to the number that it was begun with."""
    api_url: str = "https://graph.facebook.com/v23.0"
    """Where the Cloud API is, with its version: Meta's, or a stand-in."""
    rate_limit_seconds: float = Field(default=4, gt=0)
    """The first wait after WhatsApp said "too many messages". Each further wait is four times as long, up to an hour."""

    @field_validator("allowed_users", "admin_users")
    @classmethod
    def _are_ids(cls, entries: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        for place, entry in enumerate(entries, 1):
            if not USER_ID_FORM.fullmatch(entry) and (entry != EVERYBODY or info.field_name != "allowed_users"):
                name = f"WHATSAPP__{str(info.field_name).upper()}"
                raise ValueError(f"{name}: entry {place} is no WhatsApp id: digits only, without + and spaces")
        return entries

    @model_validator(mode="after")
    def _fits(self) -> WhatsAppSettings:
        needed = {
            "ACCESS_TOKEN": self.access_token is not None,
            "APP_SECRET": bool(self.app_secret),
            "VERIFY_TOKEN": self.verify_token is not None,
            "PHONE_NUMBER_ID": self.phone_number_id is not None,
        }
        missing = [name for name, is_there in needed.items() if not is_there]
        if missing and (self.enabled or self.further_phone_number_ids or len(missing) < len(needed)):
            raise ValueError(f"WHATSAPP__{missing[0]} is missing: a receiver without its secrets does not start")
        if self.access_token is not None and not ACCESS_TOKEN_FORM.fullmatch(self.access_token.get_secret_value()):
            raise ValueError("WHATSAPP__ACCESS_TOKEN is one word of letters, digits and signs")
        secrets = (*self.app_secret, *([self.verify_token] if self.verify_token is not None else []))
        if not all(secret.get_secret_value() for secret in secrets):
            raise ValueError("WHATSAPP__APP_SECRET and WHATSAPP__VERIFY_TOKEN: an empty one would let everybody in")
        if not all(NUMBER_ID_FORM.fullmatch(id) for id in self.numbers.values()):
            raise ValueError("WHATSAPP__PHONE_NUMBER_ID is the id of a number, as Meta shows it, and not the number")
        if len(set(self.numbers.values())) < len(self.numbers):
            raise ValueError("WHATSAPP__FURTHER_PHONE_NUMBER_IDS names WHATSAPP__PHONE_NUMBER_ID again")
        if not self.api_url.startswith(("https://", "http://")):
            raise ValueError("WHATSAPP__API_URL is an http(s) address")
        return self

    @property
    def numbers(self) -> dict[str, str]:
        """The ids of our phone numbers, by account. The account of WHATSAPP__PHONE_NUMBER_ID has no name."""
        first = {"": self.phone_number_id} if self.phone_number_id is not None else {}
        return {**first, **{id: id for id in self.further_phone_number_ids}}

    @property
    def on(self) -> bool:
        return self.access_token is not None and self.enabled is not False

    @property
    def addresses(self) -> Mapping[str, str]:
        return {NAME: self.api_url} if self.on else {}

    def findings(self) -> Iterator[Finding]:
        if not self.on:
            return
        yield ok(NAME, f"{counted(len(self.numbers), 'phone number', 'phone numbers')}, told by webhook")
        assert self.verify_token is not None
        if len(self.verify_token.get_secret_value()) < SECRET_CHARACTERS:
            fix = f"use at least {SECRET_CHARACTERS} random characters in KEYTURN_WHATSAPP__VERIFY_TOKEN"
            yield warn(NAME, "the verify token can be guessed", fix)


def part_token(part: Part) -> str:
    """What a send carries and its statuses bring back, so that a failure names the part."""
    return f"keyturn-{part.id}-{key_digest(part.idempotency_key)}"


def part_of(token: str | None) -> tuple[str | None, str]:
    """The part in a token that came back, and the digest of its key; None where another program sent the message."""
    found = _PART.fullmatch(token or "")
    return (found[1], found[2] or "") if found is not None else (None, "")


FACTS = Facts(
    name=NAME,
    title="WhatsApp",
    settings=WhatsAppSettings,
    receives=True,
    connects=True,
    redelivers=True,
    text_limit=Limit(4096, utf16_units),  # WhatsApp does not say what it counts: no other unit gives more
    markup=Markup.MARKS,
    buttons=ButtonLimits(3, Limit(20, utf16_units), Limit(1024, utf16_units)),
    typing_seconds=20.0,  # it shows for 25
    hides_ids=True,
    chat_type_of=lambda chat: "group" if chat.startswith(GROUP) else "dm",
    media=MediaLimits(fetched=100_000_000, sent=100_000_000),
    send_budget=SendBudget(
        bot=SendRate(80, burst=20),
        chat=SendRate(10, 60, burst=10),  # one in six seconds; bursts pass
    ),
)
