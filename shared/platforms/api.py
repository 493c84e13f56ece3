"""The HTTP API under /v1: programs post messages and follow their sessions for the replies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator
from pydantic_settings import NoDecode

from shared.finding import Finding, ok, warn
from shared.platforms.facts import Facts, Idempotency
from shared.platforms.settings import REFUSED_OF_PROGRAMS, PlatformSettings, SenderQuota
from shared.setting_values import Listed, Names, Secrets

NAME = "api"
KEY_CHARACTERS = 16  # a shorter key can be guessed
Scope = Literal["messages", "chat", "read", "send", "scale"]
KeyName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")]


class NamedKey(BaseModel):
    """A key with a name. Its conversations are its own: no other name sees them. Its name is the account in their session
    keys, such as `agent:main:api@shop:dm:c1`, and ROUTING may name it."""

    model_config = ConfigDict(extra="forbid", defer_build=True, allow_inf_nan=False)

    secrets: Secrets = ()
    """What callers send as their bearer key. List two while one replaces the other."""
    scopes: Annotated[tuple[Scope, ...], NoDecode, Listed] = ("messages", "chat", "read", "send")
    """What the key may be used for: `messages` posts messages, `chat` is for chat completions and the list of models, `read`
    asks where messages stand and follows sessions, `send` sends to the chats that DELIVER_TO lists. `scale` asks how much work
    the whole deployment has; a key has it only where it is named."""
    messages_per_minute: int | None = Field(default=None, ge=1)
    """Messages that may come in a minute with this key. Unset: as QUOTA__SENDER_MESSAGES_PER_MINUTE says."""
    turns_in_flight: int | None = Field(default=None, ge=1)
    """Conversations that this key may have waiting or running at a time. Unset: as QUOTA__SENDER_TURNS_IN_FLIGHT says."""


class ApiSettings(PlatformSettings):
    """The HTTP API under /v1. Without any key it answers 401 to everybody."""

    PREFIX = "API"
    NEEDS = ("KEYS",)
    REFUSED = REFUSED_OF_PROGRAMS

    keys: Secrets = ()
    """Bearer keys without a name, for everything that the API can do. They all see the same conversations."""
    named_keys: dict[KeyName, NamedKey] = Field(default_factory=dict)
    """Keys by name, each with conversations, scopes and quotas of its own: `API__NAMED_KEYS__<NAME>__SECRETS`."""
    answer_seconds: float = Field(default=600, gt=0)
    """How long a chat completion waits for its answer. Then its caller gets an error; a turn that belongs to a conversation
    goes on, and any other is stopped."""
    chat_body_bytes: int = Field(default=16_777_216, ge=1024)
    """A larger chat completion is refused with 413. Front ends send pictures in it, again with each message; what stands beside
    the pictures may be as large as MAX_BODY_BYTES."""
    open_requests: int = Field(default=100, ge=1)
    """Chat completions that one key may have open at a time in one receiver. Beyond it: 429."""
    open_streams: int = Field(default=100, ge=1)
    """Event streams (`/v1/sessions/{key}/events`) that one key may have open at a time in one receiver. Beyond it: 429."""
    open_in_all: int = Field(default=1000, ge=1)
    """Chat completions and event streams that all keys together may have open in one receiver: each holds a connection to
    Redis. Beyond it: 429."""
    deliver_to: Names = ()
    """Targets that POST /v1/deliveries may send to: `<platform>` for its home channel, `<platform>:<chat>`, `<platform>:*` for
    all its chats, `*` for all chats everywhere, `local` for files. Unset: it sends nothing."""
    cors_origins: Names = ()
    """Web pages that may call the API from a browser, such as `https://chat.example.org`; `*` is every page. Empty: none."""

    @model_validator(mode="after")
    def _fits(self) -> ApiSettings:
        if self.enabled and not self.keys and not self.named_keys:
            raise ValueError("API__ENABLED needs API__KEYS or API__NAMED_KEYS")
        if nameless := [name for name, key in self.named_keys.items() if not key.secrets]:
            raise ValueError(f"API__NAMED_KEYS__{nameless[0].upper()} has no SECRETS, so nobody could use it")
        if not all(secret.get_secret_value() for _, secret in self.secrets):
            raise ValueError("API__KEYS: an empty key would let everybody in")
        whose: dict[str, str] = {}
        for name, secret in self.secrets:
            if whose.setdefault(secret.get_secret_value(), name) != name:
                raise ValueError("API__NAMED_KEYS: a secret stands under two names, so nobody could say whose it is")
        return self

    @property
    def secrets(self) -> tuple[tuple[str, SecretStr], ...]:
        """Every secret that lets somebody in, each with the name of its key; the name is empty for one of KEYS."""
        named = [(name, secret) for name, key in self.named_keys.items() for secret in key.secrets]
        return (*(("", secret) for secret in self.keys), *named)

    @property
    def on(self) -> bool:
        return bool(self.secrets) and self.enabled is not False

    @property
    def sender_quotas(self) -> Mapping[str, SenderQuota]:
        limits = {
            name: SenderQuota(key.messages_per_minute, key.turns_in_flight) for name, key in self.named_keys.items()
        }
        return {sender_of(name): quota for name, quota in limits.items() if quota != SenderQuota()}

    def findings(self) -> Iterator[Finding]:
        short = sum(len(secret.get_secret_value()) < KEY_CHARACTERS for _, secret in self.secrets)
        if short:
            fix = f"use at least {KEY_CHARACTERS} random characters in KEYTURN_API__KEYS and KEYTURN_API__NAMED_KEYS"
            yield warn("api keys", f"{short} of {len(self.secrets)} can be guessed", fix)
        elif self.secrets:
            yield ok("api keys", f"{len(self.secrets)} set")


def sender_of(name: str) -> str:
    """What quotas call the callers that use a named key, whichever of its secrets they send."""
    return f"key {name}"


FACTS = Facts(
    name=NAME,
    title="API",
    settings=ApiSettings,
    receives=True,
    redelivers=True,
    trusts_sender=True,
    idempotency=Idempotency.NATIVE,  # a reply is a row that its reader follows: there is nothing to send twice
    can_thread=True,
    chat_type_of=lambda chat: "dm",  # unless a message says otherwise
)
