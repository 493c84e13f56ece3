"""The place for blobs that the settings name."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from shared.blobs.contract import Blobs
from shared.blobs.directory import DirectoryBlobs
from shared.errors import ConfigurationError

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Credential

    from shared.blobs.bucket import BucketBlobs
    from shared.settings.blobs import BlobSettings
    from shared.settings.servers import ServerSettings

CONNECT_SECONDS = 5
SILENT_SECONDS = 30
REQUEST_SECONDS = 600  # for a large file by a slow line
RETRIES = 3
RETRY_SECONDS = 10  # then it is an outage, and the message waits without a worker


def open_blobs(settings: ServerSettings) -> Blobs:
    """The directory, or the bucket. Connects to nothing yet. ConfigurationError for what can never work."""
    if settings.blobs.url is None:
        return DirectoryBlobs(settings.blob_dir)
    return open_bucket(settings.blobs, settings.data_dir / "arriving")


def open_bucket(settings: BlobSettings, arriving: Path) -> BucketBlobs:
    """The bucket of the settings. What the environment says of other programs' object stores changes nothing, except for the
    credentials of a role, where the settings have no key."""
    try:
        from obstore.store import S3Store

        from shared.blobs.bucket import BucketBlobs
    except ImportError as error:
        raise ConfigurationError(f"BLOBS__URL needs a library: install keyturn[s3] ({error})") from None
    client: ClientConfig = {
        "allow_http": settings.address.startswith("http://"),
        "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
        "read_timeout": timedelta(seconds=SILENT_SECONDS),
        "timeout": timedelta(seconds=REQUEST_SECONDS),
    }
    if settings.ca_file is not None:
        try:
            client["root_certificate"] = settings.ca_file.read_bytes()
        except OSError as error:
            raise ConfigurationError(f"BLOBS__CA_FILE: {settings.ca_file}: {error.strerror}") from None
    retry: RetryConfig = {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_SECONDS)}
    store = S3Store(
        settings.bucket,
        prefix=settings.prefix or None,
        config={
            "endpoint": settings.address,
            "region": settings.region,
            "virtual_hosted_style_request": not settings.path_style,
            "skip_signature": False,
            "disable_bulk_delete": True,  # not every store has it
        },
        client_options=client,
        retry_config=retry,
        credential_provider=_KeyOfSettings(settings) if settings.access_key_id is not None else None,
    )
    return BucketBlobs(store, arriving)


class _KeyOfSettings:
    """Gives the library the key when it signs, so that neither its configuration nor its representation holds the key."""

    def __init__(self, settings: BlobSettings) -> None:
        self._settings = settings

    def __call__(self) -> S3Credential:
        id, secret = self._settings.access_key_id, self._settings.secret_access_key
        assert id is not None and secret is not None
        return {
            "access_key_id": id.get_secret_value(),
            "secret_access_key": secret.get_secret_value(),
            "token": None,
            "expires_at": None,
        }
