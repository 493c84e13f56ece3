"""Settings: read once, checked against each other, passed down. No other file looks at the environment."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar
from zoneinfo import ZoneInfo

from pydantic import (
    BaseModel,
    Field,
    SecretStr,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from shared.errors import ConfigurationError
from shared.platforms import ALWAYS_ON, FOR_PROGRAMS, PLATFORMS
from shared.platforms.settings import ChatSettings, PlatformSettings
from shared.session_key import MAIN
from shared.setting_values import Names
from shared.settings.agents import Llm, NamedAgent, Rule
from shared.settings.complaints import Complaints
from shared.settings.conversations import Budget, CustomCommand, Memory, Reset, ResetRule
from shared.settings.people import check_entries, ids_on

__all__ = [
    "PREFIX",
    "Budget",
    "CustomCommand",
    "Llm",
    "Memory",
    "NamedAgent",
    "Reset",
    "ResetRule",
    "Rule",
    "Settings",
    "load",
]

PREFIX = "KEYTURN_"
_AGENT_NAME = re.compile(r"[a-z0-9_][a-z0-9_~-]{0,63}")  # as session keys have it
Block = TypeVar("Block", bound=PlatformSettings)

if TYPE_CHECKING:

    class _PlatformBlocks(BaseSettings): ...
else:
    # One field for each platform of the list, by its name.
    _blocks = {name: facts.settings for name, facts in PLATFORMS.items() if facts.settings is not None}
    _PlatformBlocks = create_model(
        "_PlatformBlocks", __base__=BaseSettings, **{name: (block, block()) for name, block in _blocks.items()}
    )


class Settings(_PlatformBlocks, BaseSettings):
    """Everything that an operator can set. Read once at start; a Settings that exists can work."""

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
    """Turns at once in one worker process, and never more. A turn that waits for its model holds one."""
    delivery_concurrency: int = Field(default=200, ge=1)
    """Chats at once that one worker process sends replies to. Raise it when platforms answer slowly and replies wait."""
    lease_seconds: float = Field(default=10, gt=0)
    """A dead worker's keys go on elsewhere after this time."""
    heartbeat_seconds: float | None = Field(default=None, gt=0)
    """How often leases are renewed. Unset: three tenths of LEASE_SECONDS."""
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
    provider_outage_seconds: float = Field(default=900, ge=0)
    """A message waits this long for a model's provider that refuses everybody (429, 5xx, no connection), with growing waits
    and without spending an attempt; then it becomes a dead letter, or at once if the provider asks for a longer wait."""
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
    compress_idle_minutes: int = Field(default=0, ge=0)
    """A conversation that lay idle so long is summarised before its next turn: the provider's prompt cache has forgotten it
    by then, and all of it would be read, and paid, anew. 0: only what would not fit is summarised."""
    busy_mode: Literal["queue"] = "queue"
    """What a message does that arrives while its key is running a turn."""
    group_sessions_per_user: bool = True
    """In groups, each user has a conversation of their own."""
    thread_sessions_per_user: bool = False
    """In threads of groups too. Counts only while GROUP_SESSIONS_PER_USER is on: a shared group has shared threads."""
    shared_chats: Names = ()
    """Groups whose members share one conversation, and one per thread, as `<platform>:<chat id>`. They keep
    it whatever the two settings above say."""
    agent: str = "echo"
    """`echo`, `llm`, `local`, or `module:object`: a function str -> str, sync or async, or an object with `run(turn)`."""
    agents: dict[str, NamedAgent] = {}
    """Further agents by name, each with its own AGENT and LLM: `AGENTS__<NAME>__AGENT`, `AGENTS__<NAME>__LLM__MODEL`."""
    routing: tuple[Rule, ...] = ()
    """Who talks to which agent, a JSON list: `[{"platform": "…", "chat": "-100", "agent": "helper"}]`. First match wins."""
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
    log_format: Literal["auto", "text", "json"] = "auto"
    """`json`: a JSON object per line. `text`: lines for a person. `auto`: text on a terminal, else JSON."""
    workers: int = Field(default=1, ge=1)
    """Worker processes that `up` starts."""
    allowed_users: Names = ()
    """Users that may talk to the bot: `<platform>:42`, or a bare id, which counts on all chat platforms; `*` is everybody there."""
    allow_all_users: bool = False
    """Everybody may talk to the bot where no list says otherwise."""
    redact_pii: bool = False
    """Prompts and log lines show ids of people and chats as keyed hashes, where nobody needs them to mention somebody."""
    redact_key: SecretStr | None = None
    """The key of those hashes, 16 bytes or more. Unset: made up once and kept in DATA_DIR; PostgreSQL needs it set."""
    admin_users: Names = ()
    """Users that may give every command: `<platform>:42`, or a bare id, which counts on all chat platforms. Where a program
    makes up the user ids, only the first form counts."""
    user_commands: Names = ("*",)
    """The commands that others may give; `*` is all but those for admins. /help and /whoami are always among them."""
    commands: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")], CustomCommand] = {}
    """Commands of your own: `COMMANDS__<name>` = `{"text": …}` or `{"prompt": …}`."""
    llm: Llm = Llm()
    timezone: str = "UTC"
    """Whose clocks count for a daily reset, a day's budget and LLM__TIMESTAMPS: an IANA name such as Europe/Berlin."""
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
        assert isinstance(dotenv_settings, DotEnvSettingsSource)
        dotenv_settings.env_vars = {  # other programs may keep theirs in the same file
            name: value for name, value in dotenv_settings.env_vars.items() if name.upper().startswith(PREFIX)
        }
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
        blocks = [name for name in PLATFORMS if name not in ALWAYS_ON]
        check_entries("ALLOWED_USERS", self.allowed_users, blocks, everybody=True)
        check_entries("ADMIN_USERS", self.admin_users, blocks, everybody=False)
        if unknown := sorted(self.reset.by_platform.keys() - PLATFORMS.keys()):
            raise ValueError(f"RESET__BY_PLATFORM: there is no platform {', '.join(unknown)}")
        return self

    @model_validator(mode="after")
    def _fits_together(self) -> Settings:
        if self.heartbeat > self.lease / 3:
            raise ValueError("HEARTBEAT_SECONDS must be at most a third of LEASE_SECONDS: two renewals may fail")
        if self.backoff_seconds > self.backoff_max_seconds:
            raise ValueError("BACKOFF_SECONDS must not exceed BACKOFF_MAX_SECONDS")
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
    def heartbeat(self) -> timedelta:
        """How often leases are renewed."""
        return timedelta(seconds=self.heartbeat_seconds) if self.heartbeat_seconds is not None else self.lease * 0.3

    @property
    def sqlite_path(self) -> Path:
        return self.data_dir / "keyturn.db"

    @property
    def database(self) -> str:
        """The database URL in force."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{self.sqlite_path}"

    def platform(self, name: str) -> PlatformSettings | None:
        """The block of a platform; None for one that has nothing to set, or that nobody has heard of."""
        facts = PLATFORMS.get(name)
        return None if facts is None or facts.settings is None else self.block(facts.settings)

    @property
    def blocks(self) -> tuple[PlatformSettings, ...]:
        """The blocks of all platforms that have one, sorted by name."""
        return tuple(block for name in PLATFORMS if (block := self.platform(name)) is not None)

    def block(self, kind: type[Block]) -> Block:
        """The block of that kind, for the platform whose own it is."""
        name = next(name for name, facts in PLATFORMS.items() if facts.settings is kind)
        found: Block = getattr(self, name)
        return found

    def allowed_on(self, platform: str) -> set[str]:
        """The ids that the lists of those who may talk name on a platform."""
        block = self.platform(platform)
        return (
            self._named(platform, self.allowed_users, block.allowed_users) if isinstance(block, ChatSettings) else set()
        )

    def admins_on(self, platform: str) -> set[str]:
        """The ids that the lists of admins name on a platform."""
        block = self.platform(platform)
        return self._named(platform, self.admin_users, block.admin_users) if block is not None else set()

    def _named(self, platform: str, everywhere: Iterable[str], here: Iterable[str]) -> set[str]:
        return {*here, *ids_on(platform, everywhere, bare=platform not in FOR_PROGRAMS)}

    def for_agent(self, name: str) -> Settings:
        """The settings as that agent has them."""
        if name not in self.agents:
            return self
        return self.model_copy(update={"agent": self.agents[name].agent, "llm": self.agents[name].llm})

    @property
    def connected(self) -> tuple[str, ...]:
        """The platforms that are on, sorted."""
        blocks = {name: self.platform(name) for name in PLATFORMS}
        return tuple(name for name, block in blocks.items() if block is None or block.on)

    @property
    def listening(self) -> tuple[str, ...]:
        """The platforms that somebody has to listen to, sorted."""
        return tuple(name for name in PLATFORMS if (block := self.platform(name)) is not None and block.listens)

    def secret_values(self) -> tuple[str, ...]:
        """What must never be shown: every secret of every block, and of a URL the password in it."""
        found = [*_secrets_in(self), *(url for block in self.blocks for url in block.addresses.values())]
        listed = [part for text in found for part in (text.split(",") if "://" in text else [text])]
        passwords = [text.rpartition("@")[0].partition("://")[2].partition(":")[2] for text in listed if "://" in text]
        secrets = [text for text in listed if "://" not in text]
        halves = [text.partition(":")[2] for text in secrets]  # a token may be an id, a colon and the secret
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
        raise ConfigurationError(Complaints(Settings, PREFIX).about_unknown(unknown))
    try:
        return Settings(**overrides)
    except ValidationError as error:
        raise ConfigurationError(Complaints(Settings, PREFIX).about(error)) from None
    except SettingsError as error:  # a block written as JSON, and not well
        raise ConfigurationError(str(error)) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"keyturn.toml: {error}") from None


def _is_known(name: str) -> bool:
    """Whether a variable names a setting; what a block holds is checked with the block."""
    field, nested, _ = name.lower().removeprefix(PREFIX.lower()).partition("__")
    known = Settings.model_fields.get(field)
    return known is not None and (not nested or isinstance(known.default, BaseModel | dict))
