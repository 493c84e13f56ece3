"""Feishu's facts and settings, and the forms in which both halves write Feishu's own things. Lark is the same elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

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
)
from shared.platforms.settings import ChatSettings
from shared.setting_values import EVERYBODY, Secrets

NAME = "feishu"
FILE_SCHEME = "feishu-file:"  # before <message id>/<image or file>/<key>: the address of a file that Feishu keeps
ID = re.compile(r"[A-Za-z0-9_-]{1,128}")  # of anything of Feishu's: it may stand in a path
APP_ID_FORM = re.compile(r"[A-Za-z0-9_-]{1,64}")
SECRET_FORM = re.compile(r"[!-~](?:[ -~]{0,254}[!-~])?")
USER_ID_FORM = re.compile(r"o[un]_[A-Za-z0-9_-]{1,64}")


class FeishuSettings(ChatSettings):
    """A Feishu or Lark app. With a verification token or an encrypt key Feishu posts events to us; without one `keyturn
    listen feishu` holds a connection."""

    PREFIX = "FEISHU"
    NEEDS = ("APP_ID", "APP_SECRET")

    app_id: str | None = None
    """The app's id, `cli_…`, of its page of credentials."""
    app_secret: SecretStr | None = None
    """The app's secret, beside its id: what everything is sent with."""
    verification_token: Secrets = ()
    """The app's verification token; list two to rotate. It proves a request where there is no encrypt key."""
    encrypt_key: Secrets = ()
    """The app's encrypt key; list two to rotate. Requests are then signed and encrypted, and others are refused."""
    api_url: str = "https://open.feishu.cn"
    """Where the open platform is: `https://open.feishu.cn`, `https://open.larksuite.com` for Lark, or a stand-in."""

    @field_validator("allowed_users", "admin_users")
    @classmethod
    def _are_ids(cls, entries: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        for place, entry in enumerate(entries, 1):
            if not USER_ID_FORM.fullmatch(entry) and (entry != EVERYBODY or info.field_name != "allowed_users"):
                name = f"FEISHU__{str(info.field_name).upper()}"
                raise ValueError(f"{name}: entry {place} is no open id (ou_…) or union id (on_…), as the log shows it")
        return entries

    @model_validator(mode="after")
    def _fits(self) -> FeishuSettings:
        if (self.app_id is None or self.app_secret is None) and (needy := self._needs_app()):
            missing = "FEISHU__APP_ID" if self.app_id is None else "FEISHU__APP_SECRET"
            raise ValueError(f"FEISHU__{needy} needs {missing}: nothing could be answered")
        if self.app_id is not None and not APP_ID_FORM.fullmatch(self.app_id):
            raise ValueError("FEISHU__APP_ID is letters, digits, _ and -, such as cli_a1b2c3")
        named = {"VERIFICATION_TOKEN": self.verification_token, "ENCRYPT_KEY": self.encrypt_key}
        for name, secrets in named.items():
            if not all(SECRET_FORM.fullmatch(secret.get_secret_value()) for secret in secrets):
                raise ValueError(f"FEISHU__{name} is 1 to 256 visible characters, as the app's page shows it")
        if self.app_secret is not None and not SECRET_FORM.fullmatch(self.app_secret.get_secret_value()):
            raise ValueError("FEISHU__APP_SECRET is 1 to 256 visible characters, as the app's page shows it")
        if not self.api_url.startswith(("https://", "http://")):
            raise ValueError("FEISHU__API_URL is an http(s) address")
        return self

    def _needs_app(self) -> str:
        """The setting that is in vain without an app."""
        if self.enabled:
            return "ENABLED"
        given = {
            "VERIFICATION_TOKEN": self.verification_token,
            "ENCRYPT_KEY": self.encrypt_key,
            "APP_ID": self.app_id,
            "APP_SECRET": self.app_secret,
        }
        return next((name for name, value in given.items() if value), "")

    @property
    def on(self) -> bool:
        return self.app_id is not None and self.app_secret is not None and self.enabled is not False

    @property
    def is_told(self) -> bool:
        """Whether Feishu posts events to us."""
        return bool(self.verification_token or self.encrypt_key)

    @property
    def listens(self) -> bool:
        return self.on and not self.is_told

    @property
    def addresses(self) -> Mapping[str, str]:
        return {NAME: self.api_url} if self.on else {}

    def findings(self) -> Iterator[Finding]:
        if not self.on:
            return
        if self.listens:
            yield ok(NAME, f"events come by `keyturn listen {NAME}`")
        elif self.encrypt_key:
            yield ok(NAME, f"Feishu posts to /webhooks/{NAME}, signed and encrypted")
        else:
            fix = "set an Encrypt Key in the app and as KEYTURN_FEISHU__ENCRYPT_KEY"
            yield warn(NAME, f"Feishu posts to /webhooks/{NAME}, and requests are proved by a token in them alone", fix)


def written_bytes(text: str) -> int:
    """The bytes of a text in a request, where it stands in JSON within JSON, and each `<` may get a mark behind it."""
    inner = json.dumps(text, ensure_ascii=False)[1:-1]
    outer = json.dumps(inner, ensure_ascii=False)[1:-1]
    return len(outer.encode("utf-8", "surrogatepass")) + 3 * text.count("<")


FACTS = Facts(
    name=NAME,
    title="Feishu",
    settings=FeishuSettings,
    receives=True,
    listens=True,
    connects=True,
    redelivers=False,  # four times only, and hours apart: a message for a full chat is set aside
    text_limit=Limit(
        10_000, written_bytes
    ),  # Feishu takes 30 KB of rich text; more than this nobody reads in one message
    idempotency=Idempotency.NATIVE,  # for an hour
    can_edit=True,
    buttons=ButtonLimits(20, Limit(60)),  # of a card, which takes 30 KB in all
    preview=PreviewLimits(3.0, changes=6),  # a message can be changed 20 times, and there are three attempts
    can_thread=True,
    prompt_note=(
        "You have no access to the Feishu API: you cannot search it, read its chats or manage it. Say so when asked to. "
        'Writing <at user_id="ou_…">Name</at> mentions the person with that open id.'
    ),
    media=MediaLimits(fetched=100_000_000, sent=30_000_000),
    send_budget=SendBudget(
        bot=SendRate(1000, 60, burst=20),
        chat=SendRate(5, burst=3),  # all bots of a group together
    ),
)
