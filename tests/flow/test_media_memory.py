"""Many large pictures at once, in a process of its own so that nothing else counts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.buckets import KEY_ID, SECRET, BucketServer

ROOT = Path(__file__).parents[2]
COUNT, SIZE, LIMIT_MB = 100, 5_000_000, 300
PROGRAM = """
import asyncio, json, sys
from pathlib import Path
from aiohttp import web
from tests.support.uploads import a_png

COUNT, SIZE, way = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]


async def serve():
    async def picture(request):
        response = web.StreamResponse(headers={"content-length": str(SIZE)})
        await response.prepare(request)
        head = a_png(mark=request.path.encode())
        await response.write(head)
        left = SIZE - len(head)
        while left:
            await response.write(b"x" * min(left, 65536))
            left -= min(left, 65536)
        return response

    async def model(request):
        size = 0
        async for chunk in request.content.iter_any():
            size += len(chunk)
        assert size > SIZE * 4 / 3, size
        done = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "seen"}, "finish_reason": "stop"}]}
        return web.json_response(done)

    app = web.Application(client_max_size=10**9)
    app.router.add_get("/{path:.*}", picture)
    app.router.add_post("/v1/chat/completions", model)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=256)
    await site.start()
    print(site._server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


async def work():
    from pydantic import SecretStr
    from shared.agent.events import Done
    from shared.agent.files import BlobFiles
    from shared.agent.turn import Turn
    from shared.blobs.place import open_blobs
    from shared.messages import Inbound, Media, Source
    from shared.public_http import open_public_http
    from shared.settings import LlmSettings, MediaSettings
    from shared.settings.servers import ServerSettings
    from workers.agents.llm import LlmAgent
    from workers.media.fetch import MediaFetcher

    port, blobs = sys.argv[4], open_blobs(ServerSettings(data_dir=sys.argv[5], blobs=json.loads(sys.argv[6])))
    url = f"http://127.0.0.1:{port}"
    agent = LlmAgent(LlmSettings(model="m", base_url=f"{url}/v1", api_key=SecretStr("k"), image_bytes=SIZE))
    async with open_public_http(["127.0.0.1"]) as public:
        fetcher = MediaFetcher(blobs, MediaSettings(allowed_hosts=("127.0.0.1",), fetch_seconds=600), {}, public)

        async def one(n):
            source = Source("api", f"c{n}", user="u")
            said = Inbound(f"in_{n}", f"e{n}", source, "look", (Media(f"{url}/{n}.png", "image/png", "a.png"),))
            said = await fetcher.fetched(said)
            assert len(said.media) == 1, said.text
            turn = Turn("t", f"agent:main:api:dm:c{n}", "s", (), (said,), files=BlobFiles(blobs))
            events = [event async for event in agent.run(turn)]
            assert isinstance(events[-1], Done) and events[-1].replies[0].text == "seen"

        await asyncio.gather(*map(one, range(COUNT)))
    status = Path("/proc/self/status").read_text()  # ru_maxrss would count what our parent had before it started us
    print(int(status.partition("VmHWM:")[2].split()[0]) // 1024)


asyncio.run(serve() if way == "serve" else work())
"""


def peak_mb(data_dir: Path, place: dict[str, str]) -> int:
    command = [sys.executable, "-c", PROGRAM, str(COUNT), str(SIZE)]
    with subprocess.Popen([*command, "serve"], cwd=ROOT, text=True, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            port = server.stdout.readline().strip()
            arguments = [*command, "work", port, str(data_dir), json.dumps(place)]
            done = subprocess.run(arguments, cwd=ROOT, text=True, capture_output=True, timeout=500)
        finally:
            server.kill()
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout)


def test_a_hundred_pictures_at_once_keep_a_worker_below_300_mb(tmp_path: Path) -> None:
    """Fetched, kept and sent on to a model, all at the same time."""
    assert peak_mb(tmp_path, {}) < LIMIT_MB
    assert len([path for path in tmp_path.rglob("*") if len(path.name) == 64]) == COUNT


def test_a_hundred_pictures_at_once_on_their_way_to_a_bucket_keep_a_worker_below_300_mb(
    tmp_path: Path, bucket_server: BucketServer
) -> None:
    place = bucket_server.settings()
    assert place.url is not None and place.endpoint is not None
    key = {"access_key_id": KEY_ID, "secret_access_key": SECRET}
    assert peak_mb(tmp_path, {"url": place.url, "endpoint": place.endpoint, **key}) < LIMIT_MB
