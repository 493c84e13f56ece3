"""TLS to Redis with an authority of our own and a certificate for us. Valkey's wheel has no TLS: a forwarder stands before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr, ValidationError

from shared.errors import ConfigurationError
from shared.pipeline import open_pipeline
from shared.settings import Settings
from shared.settings.servers import RedisTlsSettings
from tests.support.pipe import Rig, key_of
from tests.support.servers import Databases
from tests.support.tls import Authority, tls_forwarder
from tests.support.working import working

MakeSettings = Callable[..., Settings]


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "our authority")


@pytest.fixture
def client(authority: Authority) -> tuple[Path, Path]:
    return authority.certificate("worker")


@pytest.fixture
def rediss_url(redis_url: str, authority: Authority) -> Iterator[str]:
    port = urlsplit(redis_url).port
    assert port is not None
    with tls_forwarder(port, authority.certificate("redis", "127.0.0.1"), authority.file) as forwarder:
        yield redis_url.replace("redis://", "rediss://").replace(f":{port}", f":{forwarder}")


async def test_a_message_is_answered_over_tls_with_our_own_authority_and_certificate(
    make_settings: MakeSettings, rediss_url: str, authority: Authority, client: tuple[Path, Path]
) -> None:
    tls = RedisTlsSettings(ca_file=authority.file, cert_file=client[0], key_file=client[1])
    settings = make_settings(redis_url=SecretStr(rediss_url), redis_tls=tls)
    async with open_pipeline(settings) as pipe, working(pipe):
        await Rig(pipe).accept("hello", platform="local")
        async with asyncio.timeout(90):
            while len(await Rig(pipe).transcript(key_of(platform="local"))) < 2:
                await asyncio.sleep(0.02)


async def test_a_server_of_another_authority_or_another_name_is_not_believed_and_who_has_no_certificate_is_refused(
    make_settings: MakeSettings, rediss_url: str, authority: Authority, client: tuple[Path, Path], tmp_path: Path
) -> None:
    ours: dict[str, Any] = {"cert_file": client[0], "key_file": client[1]}
    elsewhere = rediss_url.replace("127.0.0.1", "127.0.0.2").replace("@127.0.0.2", "@localhost")
    others = Authority(tmp_path, "another authority")
    for url, tls in (
        (rediss_url, RedisTlsSettings(**ours)),
        (rediss_url, RedisTlsSettings(ca_file=others.file, **ours)),
        (rediss_url, RedisTlsSettings(ca_file=authority.file)),
        (elsewhere, RedisTlsSettings(ca_file=authority.file, **ours)),
    ):
        async with open_pipeline(make_settings(redis_url=SecretStr(url), redis_tls=tls)) as pipe:
            assert not await pipe.servers.all[0].ping(), tls
    any_name = RedisTlsSettings(ca_file=authority.file, check_hostname=False, **ours)
    async with open_pipeline(make_settings(redis_url=SecretStr(elsewhere), redis_tls=any_name)) as pipe:
        assert await pipe.servers.all[0].ping()


async def test_files_that_cannot_be_used_are_said_at_start(
    make_settings: MakeSettings, rediss_url: str, authority: Authority, client: tuple[Path, Path], tmp_path: Path
) -> None:
    cert, key = client
    other_key = authority.certificate("other")[1]
    for name, tls in (
        ("CA_FILE", RedisTlsSettings(ca_file=tmp_path / "nowhere")),
        ("CA_FILE", RedisTlsSettings(ca_file=key)),
        ("CERT_FILE", RedisTlsSettings(cert_file=cert, key_file=other_key)),
    ):
        with pytest.raises(ConfigurationError, match=name):
            async with open_pipeline(make_settings(redis_url=SecretStr(rediss_url), redis_tls=tls)):
                pass
    with pytest.raises(ValidationError, match="need each other"):
        RedisTlsSettings(cert_file=cert)
