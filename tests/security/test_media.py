"""Files whose addresses strangers chose: nothing private is reached, nothing endless is read, and the agent is told why."""

from __future__ import annotations

import asyncio
import gzip
import ipaddress
import socket
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from shared import public_http
from shared.blobs.directory import DirectoryBlobs
from shared.errors import Unreachable
from shared.messages import Inbound, Media, Source
from shared.public_http import NotPublic, is_public, open_public_http
from shared.settings import MediaSettings
from tests.support.uploads import a_png
from workers.media.fetch import AT_ONCE, TRIES, MediaFetcher

PUBLIC = "93.184.215.14"
PRIVATE = [
    "127.0.0.1",
    "127.8.8.8",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "192.0.2.1",
    "::1",
    "::",
    "fe80::1",
    "fc00::1",
    "fec0::1",
    "3fff::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
]
Handler = Callable[[web.Request], object]


@pytest.mark.parametrize("address", PRIVATE)
def test_no_address_of_a_private_network_is_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", [PUBLIC, "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "64:ff9b::5db8:d70e"])
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


class Names(AbstractResolver):
    """A name server that says these, one after another; the last for ever."""

    def __init__(self, *answers: tuple[str, ...]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked += 1
        given = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        about = {"hostname": host, "port": port, "proto": 0, "flags": socket.AI_NUMERICHOST}
        kinds = [(one, socket.AF_INET6 if ":" in one else socket.AF_INET) for one in given]
        return [ResolveResult(host=one, family=kind, **about) for one, kind in kinds]  # type: ignore[typeddict-item]

    async def close(self) -> None:
        pass


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where connections would go. None is made."""
    places: list[str] = []
    check = public_http.check_public

    def checked(host: str) -> None:
        check(host)
        places.append(host)

    def no_socket(*_: object) -> socket.socket:
        raise OSError("no network here")

    monkeypatch.setattr(public_http, "check_public", checked)
    monkeypatch.setattr("shared.public_http.socket", SimpleNamespace(socket=no_socket))
    return places


async def ask(address: str, *answers: tuple[str, ...]) -> None:
    async with open_public_http(names=Names(*answers or ((PUBLIC,),))) as client, client.get(address, 5):
        raise AssertionError("nothing was to be reached")


@pytest.mark.parametrize("address", [one for one in PRIVATE if ":" not in one])
async def test_a_name_with_a_private_address_among_others_is_refused(address: str, reached: list[str]) -> None:
    with pytest.raises(NotPublic):
        await ask("https://files.example/a.png", (PUBLIC, address))


@pytest.mark.parametrize(
    "address",
    [
        "https://127.0.0.1/a.png",
        "https://[::1]/a.png",
        "https://[::ffff:10.0.0.1]/a.png",
        "https://169.254.169.254/latest/meta-data/",
        "http://files.example/a.png",
        "ftp://files.example/a.png",
        "file:///etc/passwd",
        "https://",
        "https://[bad",
    ],
)
async def test_an_address_that_is_private_or_not_https_is_refused_before_anything_is_asked(
    address: str, reached: list[str]
) -> None:
    with pytest.raises(NotPublic):
        await ask(address)
    assert reached == []


@pytest.mark.parametrize(
    "address", ["https://127.1/a", "https://2130706433/a", "https://0x7f.1/a", "https://localhost/a"]
)
async def test_other_spellings_of_this_machine_are_refused(address: str) -> None:
    """By the machine's own resolver, which understands them."""
    async with open_public_http() as client:
        with pytest.raises((NotPublic, Unreachable)) as refused:
            async with client.get(address, 5):
                pass
    assert refused.type is NotPublic


async def test_a_name_that_is_private_a_moment_later_is_reached_where_it_was_checked(reached: list[str]) -> None:
    names = Names((PUBLIC,), ("127.0.0.1",))
    async with open_public_http(names=names) as client:
        with pytest.raises(Unreachable):
            async with client.get("https://rebinding.example/a.png", 5):
                pass
    assert names.asked == 1 and set(reached) == {PUBLIC}


# The rest from a server of our own, which an operator has allowed.


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/{path:.*}", handler)  # type: ignore[arg-type]
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server = site._server
    assert isinstance(server, asyncio.Server)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        await runner.cleanup()


class Fetching:
    """A fetcher for messages of the API, whose files may come from this machine."""

    def __init__(self, fetcher: MediaFetcher, blobs: DirectoryBlobs) -> None:
        self.fetcher = fetcher
        self.blobs = blobs

    async def of(self, *media: Media, text: str = "look") -> Inbound:
        source = Source("api", "c1", user="u1")
        return await self.fetcher.fetched(Inbound("in_1", "e1", source, text, media))

    def kept(self) -> list[Path]:
        return [path for path in self.blobs.root.rglob("*") if path.is_file() and path.name != ".lock"]


@asynccontextmanager
async def fetching(directory: Path, **settings: object) -> AsyncIterator[Fetching]:
    limits = MediaSettings.model_validate(
        {"max_bytes": 100_000, "fetch_seconds": 20, "allowed_hosts": ("127.0.0.1",), **settings}
    )
    blobs = DirectoryBlobs(directory / "blobs")
    async with open_public_http(limits.allowed_hosts) as public:
        yield Fetching(MediaFetcher(blobs, limits, {}, public), blobs)


async def test_a_picture_is_kept_and_named_without_a_path(tmp_path: Path) -> None:
    async def picture(_: web.Request) -> web.Response:
        return web.Response(body=a_png(50_000))

    async with serving(picture) as url, fetching(tmp_path) as files:
        got = await files.of(Media(f"{url}/a.png", "image/png", "../../etc/passwd.png"))
        [media] = got.media
        assert (got.text, media.type, media.name) == ("look", "image/png", "passwd.png")
        assert media.url.startswith("blob:") and [path.read_bytes() for path in files.kept()] == [a_png(50_000)]


@pytest.mark.parametrize(
    "location", ["https://10.0.0.1/a.png", "http://169.254.169.254/", "//[::1]/a", "file:///etc/passwd"]
)
async def test_a_redirect_to_a_private_address_is_refused_and_the_agent_is_told(location: str, tmp_path: Path) -> None:
    async def elsewhere(_: web.Request) -> web.Response:
        return web.Response(status=302, headers={"location": location})

    async with serving(elsewhere) as url, fetching(tmp_path) as files:
        got = await files.of(Media(f"{url}/a.png", "image/png", "a.png"))
    assert got.media == () and got.text.startswith("look\n[image: a.png: not read: ")
    assert "10.0.0.1" not in got.text and files.kept() == []


async def test_redirects_without_end_are_given_up(tmp_path: Path) -> None:
    asked = 0

    async def on_and_on(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(status=302, headers={"location": f"/{asked}"})

    async with serving(on_and_on) as url, fetching(tmp_path) as files:
        got = await files.of(Media(url, "image/png"))
    assert got.text == "look\n[image: not read: it is redirected too often]" and asked == 4


async def test_a_private_address_in_a_message_becomes_a_note(tmp_path: Path) -> None:
    async with fetching(tmp_path, allowed_hosts=()) as files:
        got = await files.of(Media("https://127.0.0.1/a.png", "image/png", "a.png"), text="")
    assert (got.text, got.media) == ("[image: a.png: not read: its address is not on the public internet]", ())


async def test_a_file_that_says_it_is_too_large_is_not_read(tmp_path: Path) -> None:
    async def large(_: web.Request) -> web.Response:
        return web.Response(body=a_png(12_000_000))

    async with serving(large) as url, fetching(tmp_path, max_bytes=10_000_000) as files:
        got = await files.of(Media(url, "image/png"))
    assert got.text == "look\n[image: too large (12 MB, at most 10 MB)]" and files.kept() == []


async def test_a_file_that_hides_its_size_is_cut_off_at_the_limit(tmp_path: Path) -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        try:
            await response.write(a_png())
            while True:
                await response.write(b"x" * 10_000)
                sent += 10_000
        except (ConnectionError, asyncio.CancelledError):
            pass
        return response

    async with serving(endless) as url, fetching(tmp_path) as files:
        got = await files.of(Media(url, "image/png"))
    assert got.text == "look\n[image: too large (at most 100 KB)]" and files.kept() == []


async def test_a_length_that_is_a_lie_keeps_no_half_file(tmp_path: Path) -> None:
    asked = 0

    async def lying(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        response = web.StreamResponse(headers={"content-length": "50000"})
        await response.prepare(request)
        await response.write(a_png())
        assert request.transport is not None
        request.transport.abort()
        return response

    async with serving(lying) as url, fetching(tmp_path) as files:
        got = await files.of(Media(url, "image/png"))
    assert got.text == "look\n[image: not read: it could not be fetched]" and files.kept() == []
    assert asked == TRIES  # it may pass, so it is tried again, and not for ever


async def test_a_file_that_trickles_in_is_given_up_when_its_time_is_over(tmp_path: Path) -> None:
    async def slow(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(a_png()[:30])
        try:
            while True:
                await asyncio.sleep(0.02)
                await response.write(b"x")
        except (ConnectionError, asyncio.CancelledError):
            pass
        return response

    async with serving(slow) as url, fetching(tmp_path, fetch_seconds=0.5) as files:
        got = await files.of(Media(url, "image/png", "a.png"))
    assert got.text == "look\n[image: a.png: not read: it did not come within 0.5 s]" and files.kept() == []


async def test_slow_files_of_one_sender_leave_room_for_those_of_others(tmp_path: Path) -> None:
    hanging, release = 0, asyncio.Event()

    async def maybe(request: web.Request) -> web.Response:
        nonlocal hanging
        if request.path == "/slow":
            hanging += 1
            await release.wait()
        return web.Response(body=a_png())

    def sent_by(user: str, *media: Media) -> Inbound:
        return Inbound("in_1", "e1", Source("webhook", f"c-{user}", user=user), "look", media)

    async with serving(maybe) as url, fetching(tmp_path) as files:
        slow = [Media(f"{url}/slow", "image/png")] * 4
        taken = [asyncio.create_task(files.fetcher.fetched(sent_by("mallory", *slow))) for _ in range(AT_ONCE // 4)]
        while hanging < 4:
            await asyncio.sleep(0.01)
        got = await files.fetcher.fetched(sent_by("ann", Media(f"{url}/a.png", "image/png")))
        assert len(got.media) == 1 and hanging == 4
        release.set()
        assert [len(one.media) for one in await asyncio.gather(*taken)] == [4] * (AT_ONCE // 4)


@pytest.mark.parametrize(
    ("content", "said", "why"),
    [
        (b"<!DOCTYPE html><html>sign in", "image/png", "it is no image, although it says so"),
        (b"MZ\x90\0\x03", "application/pdf", "files of the kind application/x-executable are not read here"),
        (b"\0\x01\x02", None, "files of the kind application/octet-stream are not read here"),
    ],
)
async def test_a_file_of_another_kind_than_it_says_is_not_kept(
    content: bytes, said: str | None, why: str, tmp_path: Path
) -> None:
    async def other(_: web.Request) -> web.Response:
        return web.Response(body=content)

    async with serving(other) as url, fetching(tmp_path) as files:
        got = await files.of(Media(url, said, "a"))
    assert got.media == () and why in got.text and files.kept() == []


async def test_nothing_is_unpacked(tmp_path: Path) -> None:
    """Neither an archive nor an answer that is packed itself."""
    bomb = BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(30_000_000))

    async def packed(request: web.Request) -> web.Response:
        if request.path == "/bomb.zip":
            return web.Response(body=bomb.getvalue())
        return web.Response(body=gzip.compress(bytes(30_000_000)), headers={"content-encoding": "gzip"})

    async with serving(packed) as url, fetching(tmp_path) as files:
        got = await files.of(
            Media(f"{url}/bomb.zip", "application/zip", "bomb.zip"), Media(f"{url}/a.txt", "text/plain", "a.txt")
        )
    assert [media.type for media in got.media] == ["application/zip"]
    assert [path.stat().st_size for path in files.kept()] == [len(bomb.getvalue())]
    assert "files of the kind application/gzip are not read here" in got.text


async def test_only_so_many_files_of_a_message_are_fetched(tmp_path: Path) -> None:
    asked: list[str] = []

    async def picture(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(body=a_png(mark=request.path.encode()))

    async with serving(picture) as url, fetching(tmp_path, max_files=2) as files:
        got = await files.of(*(Media(f"{url}/{n}", "image/png", f"{n}.png") for n in range(4)))
    assert sorted(asked) == ["/0", "/1"] and [media.name for media in got.media] == ["0.png", "1.png"]
    assert got.text.count("not read: only 2 files of a message are") == 2


async def test_a_server_that_is_busy_for_a_moment_is_asked_again(tmp_path: Path) -> None:
    answers = [web.Response(status=503), web.Response(status=429, headers={"retry-after": "0"})]

    async def busy(_: web.Request) -> web.Response:
        return answers.pop(0) if answers else web.Response(body=a_png())

    async with serving(busy) as url, fetching(tmp_path) as files:
        got = await files.of(Media(url, "image/png", "a.png"))
    assert [media.name for media in got.media] == ["a.png"]


async def test_a_full_disk_is_a_note_and_no_failed_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def picture(_: web.Request) -> web.Response:
        return web.Response(body=a_png())

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    async with serving(picture) as url, fetching(tmp_path) as files:
        monkeypatch.setattr("shared.blobs.directory.os.fsync", full)
        got = await files.of(Media(url, "image/png", "a.png"))
    assert got.text == "look\n[image: a.png: not read: it could not be fetched]" and files.kept() == []
