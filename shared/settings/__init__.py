"""Settings: read once, checked against each other, passed down. No other file looks at the environment.

Each noun has its section in a file here; `Settings` is all of them side by side, and the blocks of the platforms. Checks
that need one section alone stand with it; those that need several stand below.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError, create_model, model_validator
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
from shared.setting_values import FILE_ENCODING, PREFIX
from shared.settings.agents import AgentSettings, LlmSettings, NamedAgent, RoutingRule
from shared.settings.background import BackgroundWorkSettings
from shared.settings.budget import BudgetSettings, SpendingSettings
from shared.settings.complaints import Complaints
from shared.settings.conversations import ConversationSettings, MemorySettings, ResetRule, ResetSettings
from shared.settings.dashboard import DashboardSettings
from shared.settings.media import FileSettings, MediaSettings
from shared.settings.people import CustomCommand, PeopleSettings, check_entries, ids_on
from shared.settings.privacy import PrivacySettings
from shared.settings.processes import ProcessSettings
from shared.settings.quota import LimitSettings, QuotaSettings
from shared.settings.receiving import ReceiverSettings
from shared.settings.retention import KeepingSettings, RetentionSettings
from shared.settings.schedules import ScheduleSettings, SchedulesSettings
from shared.settings.secrets import secrets_of
from shared.settings.section import Section
from shared.settings.servers import ServerSettings
from shared.settings.watching import WatchingSettings
from shared.settings.work import WorkSettings

__all__ = [
    "PREFIX",
    "SECTIONS",
    "BudgetSettings",
    "CustomCommand",
    "LlmSettings",
    "MediaSettings",
    "MemorySettings",
    "NamedAgent",
    "QuotaSettings",
    "ResetRule",
    "ResetSettings",
    "RetentionSettings",
    "RoutingRule",
    "ScheduleSettings",
    "Settings",
    "load",
]

PlatformBlock = TypeVar("PlatformBlock", bound=PlatformSettings)

if TYPE_CHECKING:

    class _PlatformBlocks(BaseSettings): ...
else:
    # One field for each platform of the list, by its name.
    _blocks = {name: facts.settings for name, facts in PLATFORMS.items() if facts.settings is not None}
    _PlatformBlocks = create_model(
        "_PlatformBlocks", __base__=BaseSettings, **{name: (block, block()) for name, block in _blocks.items()}
    )


class Settings(
    ServerSettings,
    AgentSettings,
    PeopleSettings,
    ConversationSettings,
    SpendingSettings,
    LimitSettings,
    SchedulesSettings,
    BackgroundWorkSettings,
    PrivacySettings,
    KeepingSettings,
    WorkSettings,
    FileSettings,
    ReceiverSettings,
    ProcessSettings,
    DashboardSettings,
    WatchingSettings,
    _PlatformBlocks,
    BaseSettings,
):
    """Everything that an operator can set. Read once at start; a Settings that exists can work."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        env_file=".env",
        env_file_encoding=FILE_ENCODING,
        toml_file="keyturn.toml",
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
    )

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
        return init_settings, env_settings, dotenv_settings, _TomlFile(settings_cls)

    @model_validator(mode="after")
    def _lists_name_platforms(self) -> Settings:
        blocks = [name for name in PLATFORMS if name not in ALWAYS_ON]
        check_entries("ALLOWED_USERS", self.allowed_users, blocks, everybody=True)
        check_entries("ADMIN_USERS", self.admin_users, blocks, everybody=False)
        if unknown := sorted(self.reset.by_platform.keys() - PLATFORMS.keys()):
            raise ValueError(f"RESET__BY_PLATFORM: there is no platform {', '.join(unknown)}")
        if any(chat.partition(":")[0] not in PLATFORMS or not chat.partition(":")[2] for chat in self.busy_chats):
            raise ValueError("BUSY_CHATS names chats as <platform>:<chat id>")
        return self

    @model_validator(mode="after")
    def _machines_hide_ids_alike(self) -> Settings:
        if self.redact_pii and self.redact_key is None and not self.database.startswith("sqlite:"):
            raise ValueError("REDACT_PII needs REDACT_KEY here: all machines must hide an id the same way")
        return self

    @model_validator(mode="after")
    def _files_outlive_turns(self) -> Settings:
        if self.media.orphan_hours * 3600 < 2 * self.turn_timeout_seconds:
            raise ValueError("MEDIA__ORPHAN_HOURS must be twice TURN_TIMEOUT_SECONDS: running turns need their files")
        return self

    def platform(self, name: str) -> PlatformSettings | None:
        """The block of a platform; None for one that has nothing to set, or that nobody has heard of."""
        facts = PLATFORMS.get(name)
        return None if facts is None or facts.settings is None else self.block(facts.settings)

    @property
    def blocks(self) -> tuple[PlatformSettings, ...]:
        """The blocks of all platforms that have one, sorted by name."""
        return tuple(block for name in PLATFORMS if (block := self.platform(name)) is not None)

    def block(self, kind: type[PlatformBlock]) -> PlatformBlock:
        """The block of that kind, for the platform whose own it is."""
        name = next(name for name, facts in PLATFORMS.items() if facts.settings is kind)
        found: PlatformBlock = getattr(self, name)
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

    @property
    def connected(self) -> tuple[str, ...]:
        """The platforms that are on, sorted."""
        blocks = {name: self.platform(name) for name in PLATFORMS}
        return tuple(name for name, block in blocks.items() if block is None or block.on)

    @property
    def listening(self) -> tuple[str, ...]:
        """The platforms that somebody has to listen to, sorted."""
        return tuple(name for name in PLATFORMS if (block := self.platform(name)) is not None and block.listens)

    @property
    def log_directory(self) -> Path:
        """Where log files are looked for."""
        return self.log_dir if self.log_dir is not None else self.data_dir / "logs"

    def secret_values(self) -> tuple[str, ...]:
        """What must never be shown: every secret of every block, and of a URL the password in it."""
        return secrets_of(self, (url for block in self.blocks for url in block.addresses.values()))


class _TomlFile(TomlConfigSettingsSource):
    """`keyturn.toml`, with or without a byte order mark."""

    def _read_file(self, file_path: Path | Traversable) -> dict[str, Any]:
        return tomllib.loads(file_path.read_text(encoding=FILE_ENCODING))


SECTIONS = tuple(kind for kind in Settings.__bases__ if issubclass(kind, Section))
"""The sections in the order in which an operator meets them."""


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
        _, _, rest = str(error).partition('field "')  # the error has the name in its text only
        raise ConfigurationError(Complaints(Settings, PREFIX).about_json(rest.partition('"')[0])) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"keyturn.toml: {error}") from None


def _is_known(name: str) -> bool:
    """Whether a variable names a setting; what a block holds is checked with the block."""
    field, nested, _ = name.lower().removeprefix(PREFIX.lower()).partition("__")
    known = Settings.model_fields.get(field)
    if known is None or not nested:
        return known is not None
    return isinstance(known.get_default(call_default_factory=True), BaseModel | dict)
