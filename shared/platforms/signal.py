"""Signal's facts and settings (signal-cli's daemon), and the forms in which both halves write Signal's own things."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pydantic import Field, ValidationInfo, field_validator, model_validator

from shared.finding import Finding, ok
from shared.platforms.facts import Facts, Limit, Markup, MediaLimits, SendBudget, utf8_bytes
from shared.platforms.settings import ChatSettings
from shared.setting_values import EVERYBODY

NAME = "signal"
FILE_SCHEME = "signal-file:"  # before an attachment's id: the address of a file that the daemon keeps
GROUP = "group:"  # before a group id: people are addressed in another way
NUMBER_FORM = re.compile(r"\+[1-9][0-9]{4,14}")
UUID_FORM = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class SignalSettings(ChatSettings):
    """A Signal account in signal-cli, run as a daemon with --http. The daemon asks nobody for a password: keep it on this
    machine or in a private network."""

    PREFIX = "SIGNAL"
    NEEDS = ("HTTP_URL", "ACCOUNT")

    http_url: str | None = Field(default=None, repr=False)
    """Where the daemon answers, such as http://127.0.0.1:8080."""
    account: str | None = None
    """The bot's own number, such as +15550001111."""
    uuid: str | None = None
    """The bot's own Signal id. Needed only where the daemon names the bot in mentions and quotations by it alone."""
    send_timeout_seconds: float = Field(default=60, gt=0)
    """How long a send may take before it counts as unanswered; to large groups it takes long."""
    silent_seconds: float = Field(default=60, gt=0)
    """After so long without a sign from the daemon, the connection is made anew. It gives one every 15 seconds."""
    rate_limit_seconds: float = Field(default=60, gt=0)
    """The first wait where Signal asks for one and does not say how long. Each further wait is twice as long, up to a day."""

    @field_validator("allowed_users", "admin_users")
    @classmethod
    def _are_ids(cls, entries: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        for place, entry in enumerate(entries, 1):
            if not is_id(entry) and (entry != EVERYBODY or info.field_name != "allowed_users"):
                name = f"SIGNAL__{str(info.field_name).upper()}"
                raise ValueError(f"{name}: entry {place} is no Signal id: a number with +, or a lower-case uuid")
        return entries

    @model_validator(mode="after")
    def _fits(self) -> SignalSettings:
        if (self.http_url is None) != (self.account is None) or (self.enabled and self.http_url is None):
            missing = "HTTP_URL" if self.http_url is None else "ACCOUNT"
            raise ValueError(f"SIGNAL__{missing} is missing: SIGNAL__HTTP_URL and SIGNAL__ACCOUNT belong together")
        if self.http_url is not None and not self.http_url.startswith(("https://", "http://")):
            raise ValueError("SIGNAL__HTTP_URL is an http(s) address")
        if self.account is not None and not NUMBER_FORM.fullmatch(self.account):
            raise ValueError("SIGNAL__ACCOUNT is the bot's number, with + and the country's code")
        if self.uuid is not None and not UUID_FORM.fullmatch(self.uuid):
            raise ValueError("SIGNAL__UUID is 32 lower-case hexadecimal digits with four hyphens")
        return self

    @property
    def on(self) -> bool:
        return self.http_url is not None and self.enabled is not False

    @property
    def listens(self) -> bool:
        return self.on

    @property
    def addresses(self) -> Mapping[str, str]:
        return {NAME: self.http_url} if self.http_url is not None and self.on else {}

    def findings(self) -> Iterator[Finding]:
        if self.on:
            yield ok(NAME, f"one account, heard by `keyturn listen {NAME}`")


def is_id(text: str) -> bool:
    """Whether a text can be a person's id: a number, or the uuid that stays when the number changes."""
    return NUMBER_FORM.fullmatch(text) is not None or UUID_FORM.fullmatch(text) is not None


FACTS = Facts(
    name=NAME,
    title="Signal",
    settings=SignalSettings,
    listens=True,
    connects=True,
    text_limit=Limit(2000, utf8_bytes),  # a longer text travels as a file, which older clients cut off
    markup=Markup.RANGES,
    typing_seconds=10.0,  # it shows for 15
    can_edit=True,
    hides_ids=True,
    chat_type_of=lambda chat: "group" if chat.startswith(GROUP) else "dm",
    media=MediaLimits(fetched=20_000_000, sent=20_000_000),
    send_budget=SendBudget(),  # nobody says how much; an account that is told to wait waits in all workers
)
