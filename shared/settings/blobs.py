"""Where the files of conversations are kept: a directory of this machine, or a bucket of an object store."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import Field, SecretStr, field_validator, model_validator
from yarl import URL

from shared.settings.section import Block

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=-]*(/[A-Za-z0-9][A-Za-z0-9._=-]*)*")
SCHEME = "s3://"


class BlobSettings(Block):
    """An object store that speaks S3, for machines that share no directory. Every process needs the same."""

    url: str | None = None
    """`s3://bucket` or `s3://bucket/prefix`: files of conversations are kept there. Unset: in `blobs` under DATA_DIR. Needs
    `keyturn[s3]`."""
    endpoint: str | None = None
    """The address of the object store, `https://host` or `http://host:port`. Unset: Amazon's, in REGION."""
    region: str = Field(default="us-east-1", pattern=r"^[a-z0-9-]{1,40}$")
    """The region that requests are signed for. Stores of your own often take any."""
    access_key_id: SecretStr | None = None
    """The id of the key that requests are signed with. Unset: the role that Amazon gives this machine or pod."""
    secret_access_key: SecretStr | None = None
    """The secret of that key."""
    path_style: bool = True
    """Whether the bucket is named in the path, which every store takes. False: in front of the host's name."""
    ca_file: Path | None = None
    """The certificate of your own authority, in PEM form, for a store whose certificate it signed."""

    @field_validator("url")
    @classmethod
    def _names_a_bucket(cls, url: str | None) -> str | None:
        bucket, _, prefix = (url or f"{SCHEME}unset").removeprefix(SCHEME).partition("/")
        if url is not None and not url.startswith(SCHEME):
            raise ValueError("must begin with s3://")
        if not _BUCKET.fullmatch(bucket):
            raise ValueError("names a bucket as s3://bucket or s3://bucket/prefix, without a key in it")
        if prefix.rstrip("/") and not _PREFIX.fullmatch(prefix.rstrip("/")):
            raise ValueError("has a prefix with other characters than letters, digits and . _ = - /")
        return url

    @field_validator("endpoint")
    @classmethod
    def _is_the_address_of_a_host(cls, endpoint: str | None) -> str | None:
        if endpoint is None:
            return None
        try:
            found = URL(endpoint)
        except ValueError:
            found = URL()
        if found.scheme not in ("http", "https") or not found.host or found != found.origin() or "@" in endpoint:
            raise ValueError("is https://host or http://host:port, without a path and without a key in it")
        return endpoint.rstrip("/")

    @model_validator(mode="after")
    def _a_key_is_whole(self) -> BlobSettings:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("BLOBS__ACCESS_KEY_ID and BLOBS__SECRET_ACCESS_KEY need each other")
        if self.url is None and (self.endpoint is not None or self.access_key_id is not None):
            raise ValueError("BLOBS__URL is needed: without it, files are kept under DATA_DIR")
        return self

    @property
    def bucket(self) -> str:
        """The name of the bucket; empty where there is none."""
        return (self.url or "").removeprefix(SCHEME).partition("/")[0]

    @property
    def prefix(self) -> str:
        """What all names in the bucket begin with; may be empty."""
        return (self.url or "").removeprefix(SCHEME).partition("/")[2].rstrip("/")

    @property
    def address(self) -> str:
        """Where requests go."""
        host = self.endpoint or f"https://s3.{self.region}.amazonaws.com"
        return host if self.path_style else host.replace("://", f"://{self.bucket}.", 1)
