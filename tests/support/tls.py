"""TLS for tests: an authority with certificates of its own, and a forwarder that speaks TLS in front of a plain server."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


class Authority:
    """Signs certificates, as files in PEM form."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory, self._name = directory, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.file = directory / f"{name}.pem"
        self.file.write_bytes(self._signed(name, self._key.public_key(), (), is_authority=True))

    def certificate(self, name: str, *hosts: str) -> tuple[Path, Path]:
        """The certificate of somebody at these hosts, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        cert_file, key_file = self._directory / f"{name}.crt", self._directory / f"{name}.key"
        cert_file.write_bytes(self._signed(name, key.public_key(), hosts, is_authority=False))
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        key_file.write_bytes(key.private_bytes(*form))
        return cert_file, key_file

    def _signed(
        self, name: str, key: ec.EllipticCurvePublicKey, hosts: tuple[str, ...], *, is_authority: bool
    ) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        names: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address(host)) for host in hosts]
        builder = (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(_named(self._name))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


@contextmanager
def tls_forwarder(target: int, certificate: tuple[Path, Path], clients: Path) -> Iterator[int]:
    """Listens with TLS, asks clients for a certificate, and passes on to a plain port. Runs in a thread: who connects may
    block the loop of the test. Gives its port."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=clients)
    context.load_cert_chain(*certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    loop, ports = asyncio.new_event_loop(), list[int]()
    ready = threading.Event()

    async def serve() -> None:
        server = await asyncio.start_server(lambda r, w: _forward(target, r, w), "127.0.0.1", 0, ssl=context)
        ports.append(server.sockets[0].getsockname()[1])
        ready.set()

    def run() -> None:
        loop.run_until_complete(serve())
        loop.run_forever()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait()
    try:
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


async def _forward(target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    inside_reader, inside_writer = await asyncio.open_connection("127.0.0.1", target)

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, ssl.SSLError):
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        sink.close()

    await asyncio.gather(pump(reader, inside_writer), pump(inside_reader, writer), return_exceptions=True)
