"""Where everything is kept: Redis, the database, the directory of the embedded servers."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr

from shared.errors import ConfigurationError
from shared.settings.section import Section


class ServerSettings(Section):
    """Where everything is kept. Every process of a deployment needs the same servers."""

    TITLE = "Servers and files"

    redis_url: SecretStr | None = None
    """One Redis or Valkey URL, or several separated by commas; keys are spread over them. Unset: `keyturn up` starts a
    Valkey of its own under DATA_DIR."""
    database_url: SecretStr | None = None
    """`sqlite:///path` for one machine, `postgresql://…` for several. Unset: SQLite under DATA_DIR."""
    data_dir: Path = Path(".keyturn")
    """The directory of the embedded servers' files, of listeners' spools and of the files that people send. One `keyturn up`
    runs per directory."""
    durability: Literal["journal", "redis"] = "journal"
    """`journal`: a message is in SQL before its sender gets an answer, so losing Redis loses nothing. `redis`: accepting is
    faster, and a crash of Redis loses the messages that it had not yet written to disk."""
    partitions: int = Field(default=8, ge=1, le=256)
    """RQ queues per lane. With more, more workers take wakes at the same time. Every process must have the same number."""

    @property
    def sqlite_path(self) -> Path:
        """The file of the embedded database."""
        return self.data_dir / "keyturn.db"

    @property
    def blob_dir(self) -> Path:
        """Where the files of conversations are kept."""
        return self.data_dir / "blobs"

    @property
    def database(self) -> str:
        """The database URL in force."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{self.sqlite_path}"

    def redis_urls(self) -> tuple[str, ...]:
        """The Redis servers in force; a ConfigurationError where none is named and none was started."""
        listed = self.redis_url.get_secret_value().split(",") if self.redis_url is not None else []
        urls = tuple(url.strip() for url in listed if url.strip())
        if not urls:
            raise ConfigurationError("no Redis: set KEYTURN_REDIS_URL, or start `keyturn up` in this directory")
        return urls
