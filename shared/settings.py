"""Settings: read once, checked against each other, passed down. No other file looks at the environment."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

import orjson
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from shared.context.reset import Mode, ResetPolicies, ResetPolicy
from shared.errors import ConfigurationError
from shared.messages import CHAT_TYPES
from shared.session_key import MAIN

PREFIX = "KEYTURN_"
_AGENT_NAME = re.compile(r"[a-z0-9_][a-z0-9_~-]{0,63}")  # as session keys have it
_BOT_TOKEN = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]{1,200}")
_ACCOUNT = re.compile(r"[a-z0-9_-]{1,64}")
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
    models: Names = ()
    """Further models that a conversation may be switched to with /model; same provider key and address. None: no switching."""
    aside_model: str | None = None
    """The model for questions aside: titles, summaries, memory. Unset, or when it fails: the one that answers."""

    @model_validator(mode="after")
    def _fits(self) -> Llm:
        if self.base_url is not None and not self.base_url.startswith(("https://", "http://")):
            raise ValueError("LLM__BASE_URL is an http(s) address")
        return self


class NamedAgent(BaseModel):
    """A further agent, with settings of its own. Nothing is taken over from the others."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    agent: str
    """As AGENT."""
    llm: Llm = Llm()
    """As LLM."""


class Rule(BaseModel):
    """Whom a conversation is with. What is left out is no condition."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, coerce_numbers_to_str=True)

    agent: str
    """`main`, or one of AGENTS."""
    platform: str | None = None
    account: str | None = None
    chat: str | None = None
    user: str | None = None


class ResetRule(BaseModel):
    """When a conversation ends by itself. What is left out or null is the default here, never another rule's value."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    mode: Mode = "none"
    """`none`: never. `idle`: after lying idle. `daily`: at an hour of the day. `both`: whichever comes first."""
    at_hour: int = Field(default=4, ge=0, le=23)
    """The hour of a daily reset, on the clocks of TIMEZONE."""
    idle_minutes: int = Field(default=1440, ge=1)
    """How long nothing is said before an idle reset."""
    notify: bool = True
    """The chat is told, with the first answer of the new conversation."""
    notify_exclude: Names = ("api", "webhook")
    """Platforms whose chats are not told."""

    @model_validator(mode="before")
    @classmethod
    def _given(cls, values: Any) -> Any:
        return {k: v for k, v in values.items() if v is not None} if isinstance(values, dict) else values

    def policy(self) -> ResetPolicy:
        return ResetPolicy(self.mode, self.at_hour, self.idle_minutes, self.notify, self.notify_exclude)


class Reset(ResetRule):
    """When conversations end by themselves: the rule of the platform, else of the chat type, else this one. Each is whole."""

    by_type: dict[str, ResetRule] = Field(default_factory=dict)
    """Rules for `dm`, `group`, `channel`, `thread`, `other`. A thread ends by a rule for `thread` only."""
    by_platform: dict[str, ResetRule] = Field(default_factory=dict)
    """Rules for `telegram`, `webhook`, `api`, `local`."""

    @model_validator(mode="after")
    def _known(self) -> Reset:
        if unknown := sorted(self.by_type.keys() - CHAT_TYPES):
            raise ValueError(f"RESET__BY_TYPE: there is no chat type {', '.join(unknown)}")
        return self

    def policies(self) -> ResetPolicies:
        by_type = {name: rule.policy() for name, rule in self.by_type.items()}
        return ResetPolicies(self.policy(), by_type, {name: rule.policy() for name, rule in self.by_platform.items()})


class Memory(BaseModel):
    """Notes that outlive a conversation. They are made and shown by agents with a model only."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    enabled: bool = True
    """When a conversation is over, the model is asked what of it is worth keeping; later turns are shown the notes."""
    after_seconds: float = Field(default=300, ge=0)
    """How long after the end of a conversation that is asked."""
    at_once: int = Field(default=5, ge=1)
    """How many conversations a housekeeper has looked at per LOOK_SECONDS, however many have ended meanwhile."""
    look_seconds: float = Field(default=15, gt=0)
    """How often a housekeeper looks for conversations that are over."""
    timeout_seconds: float = Field(default=60, gt=0)
    """The model's time for one conversation. A message of the same chat waits for it, at the most this long."""


class CustomCommand(BaseModel):
    """A slash command of the deployment's own: TEXT is answered as it is, PROMPT goes to the agent."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    text: str | None = None
    """A fixed answer."""
    prompt: str | None = None
    """What the agent is asked; `{args}` stands for what followed the command."""
    help: str = "a command of this bot"
    """What /help says about it."""

    @model_validator(mode="after")
    def _fits(self) -> CustomCommand:
        if (self.text is None) == (self.prompt is None):
            raise ValueError("a command of COMMANDS has either TEXT or PROMPT")
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
    agents: dict[str, NamedAgent] = {}
    """Further agents by name, each with its own AGENT and LLM: `AGENTS__<NAME>__AGENT`, `AGENTS__<NAME>__LLM__MODEL`."""
    routing: tuple[Rule, ...] = ()
    """Who talks to which agent, a JSON list: `[{"platform": "telegram", "chat": "-100", "agent": "helper"}]`. First match wins."""
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
    redact_pii: bool = False
    """Prompts and log lines show ids of people and chats as keyed hashes, where nobody needs them to mention somebody."""
    redact_key: SecretStr | None = None
    """The key of those hashes, 16 bytes or more. Unset: made up once and kept in DATA_DIR; PostgreSQL needs it set."""
    admin_users: Names = ()
    """User ids that may give every command on every platform."""
    user_commands: Names = ("*",)
    """The commands that others may give; `*` is all but those for admins. /help and /whoami are always among them."""
    commands: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")], CustomCommand] = {}
    """Commands of your own: `COMMANDS__<name>` = `{"text": …}` or `{"prompt": …}`."""
    webhook: Webhook = Webhook()
    api: Api = Api()
    telegram: Telegram = Telegram()
    llm: Llm = Llm()
    timezone: str = "UTC"
    """Whose clocks count for a daily reset: an IANA name such as Europe/Berlin."""
    reset: Reset = Reset()
    memory: Memory = Memory()
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

    @field_validator("timezone")
    @classmethod
    def _is_a_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            raise ValueError("TIMEZONE is an IANA name such as Europe/Berlin") from None
        return name

    @model_validator(mode="after")
    def _platforms_are_known(self) -> Settings:
        blocks = {name for name, field in type(self).model_fields.items() if isinstance(field.default, Platform)}
        if unknown := sorted(self.reset.by_platform.keys() - blocks - {"local"}):
            raise ValueError(f"RESET__BY_PLATFORM: there is no platform {', '.join(unknown)}")
        return self

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
        if bad := [name for name in self.agents if not _AGENT_NAME.fullmatch(name) or name == MAIN]:
            raise ValueError(f"AGENTS: {bad[0]!r:.80} cannot be a name; it is a lower-case word other than {MAIN}")
        if lost := [rule.agent for rule in self.routing if rule.agent not in (MAIN, *self.agents)]:
            raise ValueError(f"ROUTING names {lost[0]!r:.80}, which is not one of AGENTS")
        if self.redact_key is not None and len(self.redact_key.get_secret_value().encode()) < 16:
            raise ValueError("REDACT_KEY has at least 16 bytes")
        if self.redact_pii and self.redact_key is None and not self.database.startswith("sqlite:"):
            raise ValueError("REDACT_PII needs REDACT_KEY here: all machines must hide an id the same way")
        return self

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.timezone)

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

    def for_agent(self, name: str) -> Settings:
        """The settings as that agent has them."""
        if name not in self.agents:
            return self
        return self.model_copy(update={"agent": self.agents[name].agent, "llm": self.agents[name].llm})

    @property
    def connected(self) -> tuple[str, ...]:
        """The platforms that are on, sorted. The terminal always is."""
        on = {
            "api": bool(self.api.keys) and self.api.enabled is not False,
            "local": True,
            "telegram": self.telegram.on,
            "webhook": bool(self.webhook.secrets) and self.webhook.enabled is not False,
        }
        return tuple(name for name in sorted(on) if on[name])

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
    elif isinstance(value, tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
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
    return known is not None and (not nested or isinstance(known.default, BaseModel | dict))
