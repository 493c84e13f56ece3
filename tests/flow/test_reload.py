"""Settings that are taken on without a restart: by SIGHUP, and by `keyturn reload`."""

from __future__ import annotations

import asyncio
import http.client
import signal
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from tests.flow.test_telegram import ANN, said
from tests.support.place import Place
from tests.support.slack import APP_TOKEN, BOT_TOKEN, SIGNING_SECRET, open_slack
from tests.support.telegram import TOKEN, open_telegram

MESSAGE = orjson.dumps({"chat": {"id": "c1"}, "user": {"id": "u1"}, "text": "hello"})


@pytest.fixture(autouse=True)
def sighup_is_heard() -> Iterator[None]:
    """Processes inherit whether it is ignored, and under nohup it is: then ours leave it so, and nothing reloads."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    opened = Place(tmp_path)
    yield opened
    opened.close()


def keys(place: Place, *names: str, more: str = "") -> None:
    place.write("keyturn.toml", f"{more}\n[api]\nkeys = {orjson.dumps(names).decode()}\n")


def post(url: str, key: str) -> int:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    try:
        connection.request("POST", "/v1/messages", MESSAGE, {"authorization": f"Bearer {key}"})
        return connection.getresponse().status
    finally:
        connection.close()


def test_an_added_key_is_let_in_a_removed_one_is_refused_and_wrong_settings_change_nothing(place: Place) -> None:
    keys(place, "old-key")
    process = place.up()
    url = place.said("up").split()[1]
    assert (post(url, "old-key"), post(url, "new-key")) == (202, 401)

    keys(place, "new-key", more="partitions = 3")
    reloaded = place.run("reload", "--json")
    assert (reloaded.returncode, orjson.loads(reloaded.stdout)) == (0, {"told": 1}), reloaded.stderr
    place.until(lambda: post(url, "new-key") == 202, process=process)
    assert post(url, "old-key") == 401
    place.until(lambda: "settings reloaded" in place.said("up", "err"), process=process)
    assert "new-key" not in place.said("up", "err")

    keys(place, "third-key", more="nonsense = 1")
    refused = place.run("reload")
    assert refused.returncode == 78 and "nonsense" in refused.stderr.lower()
    process.send_signal(signal.SIGHUP)
    place.until(lambda: "settings not reloaded, nothing is changed" in place.said("up", "err"), process=process)
    assert (post(url, "new-key"), post(url, "third-key")) == (202, 401)

    keys(place, "third-key")
    process.send_signal(signal.SIGHUP)
    place.until(lambda: post(url, "third-key") == 202, process=process)
    assert post(url, "new-key") == 401 and process.poll() is None


async def test_a_listener_whose_platform_goes_over_to_its_webhook_waits_and_ends_nothing(place: Place) -> None:
    def slack(url: str, **settings: str) -> None:
        block = {"bot_token": BOT_TOKEN, "api_url": url, **settings}
        place.write("keyturn.toml", "[slack]\n" + "".join(f'{name} = "{value}"\n' for name, value in block.items()))

    async with open_slack() as fake:
        slack(fake.url, app_token=APP_TOKEN)
        process = await asyncio.to_thread(place.up)
        await fake.until(lambda fake: fake.open_links() == 1)
        slack(fake.url, signing_secret=SIGNING_SECRET)
        process.send_signal(signal.SIGHUP)
        waits = "not listening until settings are reloaded"
        await asyncio.to_thread(place.until, lambda: waits in place.said("up", "err"), "up", process)
        assert process.poll() is None
        slack(fake.url, app_token=APP_TOKEN)
        process.send_signal(signal.SIGHUP)
        await fake.until(lambda fake: fake.open_links() == 1)
        await asyncio.to_thread(place.close)


async def test_a_listener_takes_on_who_may_talk_and_loses_no_message(place: Place) -> None:
    def allow(*users: str) -> None:
        names = orjson.dumps(users).decode()
        place.write("keyturn.toml", f"pairing = false\n[telegram]\nallowed_users = {names}\n")

    async with open_telegram() as fake:
        allow("12")
        process = await asyncio.to_thread(place.up, telegram__token=TOKEN, telegram__api_url=fake.url)
        await fake.bring(said("refused"))
        await asyncio.to_thread(place.until, lambda: "stranger turned away" in place.said("up", "err"), "up", process)
        allow("11")
        process.send_signal(signal.SIGHUP)
        reloaded = "settings reloaded"
        await asyncio.to_thread(place.until, lambda: place.said("up", "err").count(reloaded) == 2, "up", process)
        await fake.bring(said("let in"))
        await fake.until(lambda fake: fake.texts(ANN) == ["echo: let in"])
        await asyncio.to_thread(place.close)
