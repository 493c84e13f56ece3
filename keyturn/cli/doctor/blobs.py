"""Where files of conversations are kept: whether the place answers, and who must share it."""

from __future__ import annotations

import asyncio

from keyturn.cli.doctor.finding import Finding, fail, ok
from shared.blobs.place import open_bucket
from shared.errors import ConfigurationError, Unavailable
from shared.settings import Settings

CHECK = "files"
ANSWER_SECONDS = 15


async def check_blobs(settings: Settings) -> Finding:
    """Looks at the bucket, and changes nothing in it."""
    if settings.blobs.url is None:
        shared = "" if settings.database.startswith("sqlite:") else ", which every machine with a worker must share"
        return ok(CHECK, f"kept in {settings.blob_dir}{shared}")
    try:
        await check_bucket(settings)
    except ConfigurationError as error:
        return fail(CHECK, str(error), "install the library, or correct KEYTURN_BLOBS__…")
    except Unavailable as error:
        return fail(CHECK, str(error), "start it, or correct KEYTURN_BLOBS__URL, ENDPOINT, REGION and the key")
    return ok(CHECK, f"kept in {settings.blobs.url}, at {settings.blobs.address}")


async def check_bucket(settings: Settings) -> None:
    """ConfigurationError for what can never work, Unavailable for a store that does not answer, or not as it should."""
    blobs = open_bucket(settings.blobs, settings.data_dir / "arriving")
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            found = await blobs.check()
    except TimeoutError:
        found = "does not answer"
    if found is not None:
        raise Unavailable(f"BLOBS__URL: {settings.blobs.url} at {settings.blobs.address}: the store {found}")
