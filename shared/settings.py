"""Settings: read once, checked against each other, passed down. No other file looks at the environment."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from shared.errors import ConfigurationError

PREFIX = "KEYTURN_"
_BOT_TOKEN = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]{1,200}")
_BOT_SECRET = re.compile(r"[A-Za-z0-9_-]{1,256}")


def _listed(value: Any) -> Any:
    """A list may be written as JSON or separated by commas."""
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("["):
            return orjson.loads(text)
        return [item.strip() for item in text.split(",") if item.strip()]
    return value


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed)]
Secrets = Annotated[tuple[SecretStr, ...], NoDecode, BeforeValidator(_listed)]


class Platform(BaseModel):
    """What every platform block has."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    enabled: bool | None = None
    """Unset: on when its secrets are there. True without them: the process refuses to start."""
    allowed_users: Names = ()
    """Platform user ids that may talk to the bot here."""
    home_channel: str | None = None
    """Where messages go that answer nobody, such as scheduled ones."""
    require_mention: bool = True
    """In groups, only messages that name the bot are answered."""
    free_chats: Names = ()
    """Ids of groups where messages are answered that do not name the bot."""


class Webhook(Platform):
    """The generic signed webhook (Standard Webhooks)."""

    secrets: Secrets = ()
    """`whsec_…` secrets. Any of them verifies a request, the first signs the callbacks; list two to rotate."""
    callback_url: str | None = Field(default=None, repr=False)
    """Where replies are posted. Unset: replies stay readable through the API only."""
    callback_timeout_seconds: float = Field(default=15, gt=0)
    """How long a callback may take before it counts as unanswered."""


class Api(Platform):
    """The HTTP API under /v1."""

    keys: Secrets = ()
    """Bearer keys. Unset: the API answers 401 to everybody."""


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

    @model_validator(mode="after")
    def _fits(self) -> Telegram:
        if self.token is not None and not _BOT_TOKEN.fullmatch(self.token.get_secret_value()):
            raise ValueError("TELEGRAM__TOKEN is digits, a colon and a secret, as @BotFather gave it")
        if self.token is None and (self.enabled or self.webhook_secret):
            needy = "ENABLED" if self.enabled else "WEBHOOK_SECRET"
            raise ValueError(f"TELEGRAM__{needy} needs TELEGRAM__TOKEN: nothing could be answered")
        if not all(_BOT_SECRET.fullmatch(secret.get_secret_value()) for secret in self.webhook_secret):
            raise ValueError("TELEGRAM__WEBHOOK_SECRET is 1 to 256 of A-Z, a-z, 0-9, _ and -, as Telegram demands")
        if not self.api_url.startswith(("https://", "http://")):
            raise ValueError("TELEGRAM__API_URL is an http(s) address")
        return self

    @property
    def on(self) -> bool:
        return self.token is not None and self.enabled is not False

    @property
    def polls(self) -> bool:
        """Whether updates are fetched rather than brought."""
        return self.on and not self.webhook_secret


class Llm(BaseModel):
    """The `llm` agent: which model answers, and what it is told. `AGENT=local` takes all but the first three from here."""

    model_config = ConfigDict(
        extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False, protected_namespaces=()
    )

    model: str | None = None
    """`provider:name` as pydantic-ai knows it (`openai:gpt-5`); with BASE_URL, the name that the server there goes by."""
    base_url: str | None = Field(default=None, repr=False)
    """Any OpenAI-compatible server, up to and with its `/v1`. Unset: the provider's own."""
    api_key: SecretStr | None = None
    """Unset: what the provider's own variable says, such as OPENAI_API_KEY."""
    system_prompt: str = "You are a helpful assistant in a chat. Answer briefly, in the language of the user."
    """What the model is told before every conversation."""
    timeout_seconds: float = Field(default=120, gt=0)
    """A model that takes longer counts as not answering; the turn is tried again."""
    max_output_tokens: int | None = Field(default=None, ge=1)
    """A longer answer is cut off here. Unset: where the provider cuts."""
    context_tokens: int | None = Field(default=None, ge=512)
    """How much the model reads at once. Unset: as known for the model, or no limit of ours where it is not known."""
    timestamps: bool = False
    """Show the model when each message of a user was sent."""

    @model_validator(mode="after")
    def _fits(self) -> Llm:
        if self.base_url is not None and not self.base_url.startswith(("https://", "http://")):
            raise ValueError("LLM__BASE_URL is an http(s) address")
        return self


class Budget(BaseModel):
    """What may be spent in a day. Beyond it, messages are refused until the next day; what is unset has no limit."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    user_tokens_per_day: int | None = Field(default=None, ge=0)
    """Tokens, in and out, of one user."""
    user_cost_per_day: float | None = Field(default=None, ge=0)
    """USD of one user, as far as the prices are known."""
    tokens_per_day: int | None = Field(default=None, ge=0)
    """Tokens of everybody."""
    cost_per_day: float | None = Field(default=None, ge=0)
    """USD of everybody, as far as the prices are known."""

    @property
    def of_users(self) -> bool:
        return self.user_tokens_per_day is not None or self.user_cost_per_day is not None

    @property
    def of_all(self) -> bool:
        return self.tokens_per_day is not None or self.cost_per_day is not None


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        env_file=".env",
        toml_file="keyturn.toml",
        extra="forbid",
        use_attribute_docstrings=True,
        frozen=True,
        allow_inf_nan=False,
    )

    redis_url: SecretStr | None = None
    """One Redis or Valkey URL, or several separated by commas. Unset: a Valkey of our own under DATA_DIR."""
    database_url: SecretStr | None = None
    """`sqlite:///path` or `postgresql://…`. Unset: SQLite under DATA_DIR."""
    data_dir: Path = Path(".keyturn")
    """Where the embedded servers keep their files."""
    durability: Literal["journal", "redis"] = "journal"
    """`journal`: a message is in SQL before it is acknowledged. `redis`: faster, and lost with Redis' unsynced tail."""
    partitions: int = Field(default=8, ge=1, le=256)
    """RQ queues per lane. Every process of a deployment must have the same number."""
    concurrency: int = Field(default=200, ge=1)
    """Turns and deliveries at once in one worker process."""
    lease_seconds: float = Field(default=10, gt=0)
    """A dead worker's keys go on elsewhere after this time."""
    heartbeat_seconds: float = Field(default=3, gt=0)
    """How often leases are renewed and workers report to RQ."""
    turn_timeout_seconds: float = Field(default=300, gt=0)
    """A turn that takes longer is stopped and counts as failed."""
    grace_seconds: float = Field(default=25, ge=0)
    """After SIGTERM, running turns may go on for this long; the rest is handed back."""
    max_attempts: int = Field(default=3, ge=1)
    """A message whose turn failed this often becomes a dead letter."""
    backoff_seconds: float = Field(default=1, gt=0)
    """The wait after the first failed turn; it doubles with each one after."""
    backoff_max_seconds: float = Field(default=60, gt=0)
    """The longest such wait."""
    delivery_max_attempts: int = Field(default=12, ge=1)
    """A reply that could not be sent this often is buried."""
    resend_ambiguous: bool = True
    """A send that may have arrived: send again (perhaps twice) or leave it (perhaps never), where the platform cannot tell."""
    turns_per_lease: int = Field(default=16, ge=1)
    """A key with more waiting mail lets others go first after this many turns."""
    mailbox_limit: int = Field(default=1000, ge=1)
    """More waiting messages than this in one key are refused with 429."""
    history_messages: int = Field(default=120, ge=0)
    """How many transcript rows a turn sees."""
    busy_mode: Literal["queue"] = "queue"
    """What a message does that arrives while its key is running a turn."""
    group_sessions_per_user: bool = True
    """In groups, each user has a conversation of his own."""
    thread_sessions_per_user: bool = False
    """In threads too."""
    agent: str = "echo"
    """`echo`, `llm`, `local`, or `module:object`: a function str -> str, sync or async, or an object with `run(turn)`."""
    max_body_bytes: int = Field(default=1_048_576, ge=1024)
    """A larger request is refused with 413."""
    body_timeout_seconds: float = Field(default=10, gt=0)
    """A request whose body takes longer is dropped."""
    trusted_proxies: Names = ("127.0.0.1", "::1")
    """Addresses whose X-Forwarded-For is believed. Without it, all who come through one proxy share one address' limits."""
    result_seconds: int = Field(default=30, ge=1)
    """How long finished jobs stay visible in RQ dashboards."""
    sweep_seconds: float = Field(default=2, gt=0)
    """How often the housekeeper looks for what Redis lost."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Message text is logged at debug only."""
    workers: int = Field(default=1, ge=1)
    """Worker processes that `up` starts."""
    allowed_users: Names = ()
    """User ids that may talk to the bot on every platform."""
    allow_all_users: bool = False
    """Everybody may talk to the bot where no list says otherwise."""
    webhook: Webhook = Webhook()
    api: Api = Api()
    telegram: Telegram = Telegram()
    llm: Llm = Llm()
    titles: bool = True
    """Give every conversation a title after its first answer: the model's, or the first words where there is no model."""
    budget: Budget = Budget()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, dotenv_settings, TomlConfigSettingsSource(settings_cls)

    @model_validator(mode="after")
    def _times_fit(self) -> Settings:
        if self.heartbeat_seconds > self.lease_seconds / 3:
            raise ValueError("HEARTBEAT_SECONDS must be at most a third of LEASE_SECONDS: two renewals may fail")
        if self.backoff_seconds > self.backoff_max_seconds:
            raise ValueError("BACKOFF_SECONDS must not exceed BACKOFF_MAX_SECONDS")
        if self.webhook.enabled and not self.webhook.secrets:
            raise ValueError("WEBHOOK__ENABLED needs WEBHOOK__SECRETS: a receiver without its secret does not start")
        if self.webhook.callback_url and not self.webhook.secrets:
            raise ValueError("WEBHOOK__CALLBACK_URL needs WEBHOOK__SECRETS: callbacks are signed")
        if self.api.enabled and not self.api.keys:
            raise ValueError("API__ENABLED needs API__KEYS")
        if not all(key.get_secret_value() for key in self.api.keys):
            raise ValueError("API__KEYS: an empty key would let everybody in")
        return self

    @property
    def lease(self) -> timedelta:
        return timedelta(seconds=self.lease_seconds)

    @property
    def sqlite_path(self) -> Path:
        return self.data_dir / "keyturn.db"

    @property
    def database(self) -> str:
        """The database URL in force."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{self.sqlite_path}"

    def secret_values(self) -> tuple[str, ...]:
        """What must never be shown: every secret of every block, and of a URL the password in it."""
        found = [*_secrets_in(self), self.webhook.callback_url or ""]
        listed = [part for text in found for part in (text.split(",") if "://" in text else [text])]
        passwords = [text.rpartition("@")[0].partition("://")[2].partition(":")[2] for text in listed if "://" in text]
        secrets = [text for text in listed if "://" not in text]
        halves = [text.partition(":")[2] for text in secrets]  # a bot's token is its id, a colon and the secret
        return tuple(value for value in (*passwords, *secrets, *halves) if value)

    def redis_urls(self) -> tuple[str, ...]:
        """The Redis servers in force; a ConfigurationError where none is named and none was started."""
        listed = self.redis_url.get_secret_value().split(",") if self.redis_url is not None else []
        urls = tuple(url.strip() for url in listed if url.strip())
        if not urls:
            raise ConfigurationError("no Redis: set KEYTURN_REDIS_URL, or start `keyturn up` in this directory")
        return urls


def _secrets_in(value: Any) -> Iterator[str]:
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _secrets_in(getattr(value, name))
    elif isinstance(value, tuple):
        for item in value:
            yield from _secrets_in(item)


def load(**overrides: Any) -> Settings:
    """Settings from the environment, .env and keyturn.toml; a ConfigurationError says what is wrong, without values."""
    unknown = sorted(name for name in os.environ if name.upper().startswith(PREFIX) and not _is_known(name))
    if unknown:
        raise ConfigurationError(f"unknown settings in the environment: {', '.join(unknown)}")
    try:
        return Settings(**overrides)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc'])) or 'settings'}: {e['msg']}" for e in error.errors()]
        raise ConfigurationError("; ".join(lines)) from None
    except SettingsError as error:  # a block written as JSON, and not well
        raise ConfigurationError(str(error)) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"keyturn.toml: {error}") from None


def _is_known(name: str) -> bool:
    """Whether a variable names a setting; what a block holds is checked with the block."""
    field, nested, _ = name.lower().removeprefix(PREFIX.lower()).partition("__")
    known = Settings.model_fields.get(field)
    return known is not None and (not nested or isinstance(known.default, BaseModel))
