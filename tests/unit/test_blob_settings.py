"""Settings of the object store: what can never work is said at start, in one sentence, without the key."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from shared.blobs.directory import DirectoryBlobs
from shared.blobs.place import open_blobs, open_bucket
from shared.errors import ConfigurationError
from shared.settings import load
from shared.settings.blobs import BlobSettings
from shared.settings.servers import ServerSettings

SECRET = "canary-bucket-secret-1"


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"URL": "/srv/files"}, "must begin with s3://"),
        ({"URL": "https://bucket.example"}, "must begin with s3://"),
        ({"URL": "s3://"}, "names a bucket"),
        ({"URL": f"s3://id:{SECRET}@bucket"}, "without a key in it"),
        ({"URL": "s3://bucket/../other"}, "has a prefix with other characters"),
        ({"URL": "s3://bucket", "ENDPOINT": "minio:9000"}, "is https://host or http://host:port"),
        ({"URL": "s3://bucket", "ENDPOINT": f"https://id:{SECRET}@minio"}, "without a key in it"),
        ({"URL": "s3://bucket", "ENDPOINT": "https://minio/path"}, "without a path"),
        ({"URL": "s3://bucket", "ACCESS_KEY_ID": "id"}, "need each other"),
        ({"URL": "s3://bucket", "SECRET_ACCESS_KEY": SECRET}, "need each other"),
        ({"ENDPOINT": "https://minio"}, "BLOBS__URL is needed"),
        ({"URL": "s3://bucket", "REGION": "eu west"}, "REGION"),
    ],
)
def test_what_can_never_work_is_said_at_start_and_without_the_key(
    values: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in values.items():
        monkeypatch.setenv(f"KEYTURN_BLOBS__{name}", value)
    with pytest.raises(ConfigurationError, match=said) as raised:
        load()
    assert SECRET not in str(raised.value) and "BLOBS__" in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "address"),
    [
        ({}, "https://s3.us-east-1.amazonaws.com"),
        ({"region": "eu-central-1", "path_style": False}, "https://files.s3.eu-central-1.amazonaws.com"),
        ({"endpoint": "http://minio:9000/"}, "http://minio:9000"),
        ({"endpoint": "https://store.example", "path_style": False}, "https://files.store.example"),
    ],
)
def test_requests_go_where_the_settings_say(changes: dict[str, object], address: str) -> None:
    settings = BlobSettings.model_validate({"url": "s3://files/a/b/", **changes})
    assert (settings.bucket, settings.prefix, settings.address) == ("files", "a/b", address)


def test_without_a_bucket_files_are_in_the_data_directory(tmp_path: Path) -> None:
    blobs = open_blobs(ServerSettings(data_dir=tmp_path))
    assert isinstance(blobs, DirectoryBlobs) and blobs.root == tmp_path / "blobs"


def test_a_bucket_without_its_library_is_said_at_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(ConfigurationError, match=r"install keyturn\[s3\]"):
        open_blobs(ServerSettings(data_dir=tmp_path, blobs=BlobSettings(url="s3://bucket")))


def test_an_authority_that_cannot_be_read_is_said_at_start(tmp_path: Path) -> None:
    settings = BlobSettings(url="s3://bucket", ca_file=tmp_path / "none.pem")
    with pytest.raises(ConfigurationError, match=r"BLOBS__CA_FILE: .*none\.pem: No such file"):
        open_bucket(settings, tmp_path)
