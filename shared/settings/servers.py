"""Where everything is kept: Redis, the database, the directory of the embedded servers."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, model_validator

from shared.errors import ConfigurationError
from shared.redis_tls import RedisTls
from shared.redis_url import server_of, split_urls
from shared.settings.blobs import BlobSettings
from shared.settings.section import Block, Section


class RedisTlsSettings(Block):
    """TLS to Redis, for `rediss://` in REDIS_URL. Without any of these, certificates of public authorities are believed."""

    ca_file: Path | None = None
    """The certificate of your own authority, in PEM form. Only servers that it signed are then believed."""
    cert_file: Path | None = None
    """Our certificate, for a server that asks for one (Valkey's `tls-auth-clients yes`)."""
    key_file: Path | None = None
    """The key of CERT_FILE, without a password."""
    check_hostname: bool = True
    """Whether the server's certificate must name the host in REDIS_URL. False: any certificate of the authority will do."""

    @model_validator(mode="after")
    def _a_certificate_has_its_key(self) -> RedisTlsSettings:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("REDIS_TLS__CERT_FILE and REDIS_TLS__KEY_FILE need each other")
        return self

    def connecting(self) -> RedisTls:
        """How connections are made."""
        return RedisTls(self.ca_file, self.cert_file, self.key_file, self.check_hostname)


class ServerSettings(Section):
    """Where everything is kept. Every process of a deployment needs the same servers."""

    TITLE = "Servers and files"

    redis_url: SecretStr | None = None
    """One Redis or Valkey URL, or several separated by commas; keys are spread over them. `redis+sentinel://host,host/service`
    names the primary that Sentinels know. Unset: `keyturn up` starts a Valkey of its own under DATA_DIR."""
    redis_tls: RedisTlsSettings = RedisTlsSettings()
    """TLS to Redis, for `rediss://` in REDIS_URL."""
    database_url: SecretStr | None = None
    """`sqlite:///path` for one machine, `postgresql://…` for several. `postgresql://user:pw@h1:5432,h2:5432/db` names a primary and
    its replicas; whichever was promoted last is used. Unset: SQLite under DATA_DIR."""
    database_connections: int = Field(default=8, ge=1, le=100)
    """The most connections that one process opens to PostgreSQL's primary. With fewer, calls wait for each other while a process is
    busy. With replicas in DATABASE_URL, one more goes to each other server."""
    data_dir: Path = Path(".keyturn")
    """The directory of the embedded servers' files, of listeners' spools and of the files that people send. One `keyturn up`
    runs per directory."""
    blobs: BlobSettings = BlobSettings()
    """Where files of conversations are kept: under DATA_DIR, or in a bucket that all machines reach."""
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
        """Where the files of conversations are kept, unless BLOBS__URL names a bucket."""
        return self.data_dir / "blobs"

    @property
    def database(self) -> str:
        """The database URL in force."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{self.sqlite_path}"

    def redis_urls(self) -> tuple[str, ...]:
        """The Redis servers in force; a ConfigurationError where none is named and none was started."""
        urls = split_urls(self.redis_url.get_secret_value()) if self.redis_url is not None else ()
        if not urls:
            raise ConfigurationError("no Redis: set KEYTURN_REDIS_URL, or start `keyturn up` in this directory")
        if len({server_of(url) for url in urls}) < len(urls):
            raise ConfigurationError("REDIS_URL names a server twice; the second one would get no keys")
        return urls
