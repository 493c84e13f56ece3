"""An object store that does not do is named before anything starts, in one sentence, by `doctor` and by `up`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from keyturn.cli.doctor.blobs import check_blobs
from keyturn.cli.doctor.finding import Level
from keyturn.cli.preflight import check_before_start
from shared.errors import Unavailable
from shared.settings import Settings
from tests.support.buckets import KEY_ID, SECRET, BucketServer

MakeSettings = Callable[..., Settings]
WRONG = [
    ({"endpoint": "http://127.0.0.1:1"}, "at http://127.0.0.1:1: the store does not answer"),
    ({"secret_access_key": "another-secret-1"}, "the store refuses our key"),
    ({"url": "s3://there-is-none/files"}, "s3://there-is-none/files at http://127.0.0.1:"),
    ({"url": "s3://there-is-none/files"}, "the store has no such bucket, or the key may not list it"),
]


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> str:
    return "sqlite:///unused.db"


@pytest.mark.parametrize(("changes", "said"), WRONG)
async def test_doctor_names_what_is_wrong_with_the_store(
    changes: dict[str, object], said: str, make_settings: MakeSettings, bucket_server: BucketServer
) -> None:
    found = await check_blobs(make_settings(blobs=bucket_server.settings(**changes)))
    assert found.level is Level.FAIL and said in found.detail and "\n" not in found.detail and found.fix
    assert SECRET not in str(found) and KEY_ID not in str(found)


@pytest.mark.parametrize(("changes", "said"), WRONG[:2])
def test_up_ends_before_it_starts_anything(
    changes: dict[str, object], said: str, make_settings: MakeSettings, bucket_server: BucketServer
) -> None:
    with pytest.raises(Unavailable, match=said):
        check_before_start(make_settings(blobs=bucket_server.settings(**changes)), "127.0.0.1", 0)


async def test_doctor_finds_a_store_that_answers(make_settings: MakeSettings, bucket_server: BucketServer) -> None:
    found = await check_blobs(make_settings(blobs=bucket_server.settings()))
    assert found.level is Level.OK and bucket_server.endpoint in found.detail
    assert (await check_blobs(make_settings())).level is Level.OK


def test_up_starts_with_a_store_that_answers(make_settings: MakeSettings, bucket_server: BucketServer) -> None:
    check_before_start(make_settings(blobs=bucket_server.settings()), "127.0.0.1", 0)
