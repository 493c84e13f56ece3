"""`keyturn up` prints a link to its dashboard: it logs in once, and `keyturn login` makes another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from shared.embedded import child
from tests.support.dashboard import SAME_ORIGIN
from tests.support.place import Place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    opened = Place(tmp_path)
    yield opened
    opened.close()


def logged_in(link: str) -> httpx.Client:
    """A client that did what the login page's script does with a link."""
    url, token = link.split("/login#")
    client = httpx.Client(base_url=url, timeout=60, trust_env=False)
    answer = client.post("/login", data={"token": token}, headers=SAME_ORIGIN)
    assert answer.status_code == 303, answer.text
    return client


def test_up_prints_a_link_that_logs_in_once(place: Place) -> None:
    up = place.up()
    place.until(lambda: "\ndashboard " in place.said("up"), "up", up)
    [link] = re.findall(r"^dashboard (\S+)", place.said("up"), re.M)
    with closing(logged_in(link)) as admin:
        assert place.run("chat", "-m", "hello").stdout == "echo: hello\n"
        place.until(lambda: "All is well." in admin.get("/").text, "up", up)  # the reply may just be marked as sent
        assert "agent:main:local:dm:terminal" in admin.get("/conversations").text
    url, token = link.split("/login#")
    assert httpx.post(f"{url}/login", data={"token": token}, headers=SAME_ORIGIN, trust_env=False).status_code == 403
    made = place.run("login", "--role", "view", "--name", "bob")
    with closing(logged_in(made.stdout.strip())) as viewer:
        assert "bob · view" in viewer.get("/").text
        assert viewer.get("/settings").status_code == 403
    assert token not in place.said("up", "err")


def test_up_without_a_dashboard_prints_no_link(place: Place) -> None:
    place.up(dashboard__enabled="false")
    assert "dashboard" not in place.said("up")
    refused = place.run("login")
    assert refused.returncode == 1 and "name its address with --url" in refused.stderr


def test_a_dashboard_process_prints_where_it_is_and_a_link(place: Place) -> None:
    place.up(dashboard__enabled="false")
    process = place.start("dashboard", "dashboard", "--port", "0")
    place.until(lambda: "\nlogin " in place.said("dashboard"), "dashboard", process)
    ready, login = place.said("dashboard").splitlines()[:2]
    with closing(logged_in(login.removeprefix("login "))) as admin:
        assert str(admin.base_url).rstrip("/") == ready.removeprefix("ready ")
        assert "All is well." in admin.get("/").text


def test_a_dashboard_process_listens_on_the_port_of_the_settings(place: Place) -> None:
    place.up(dashboard__enabled="false")
    port = child.free_port()
    process = place.start("dashboard", "dashboard", "--no-link", dashboard__port=str(port))
    place.until(lambda: place.said("dashboard"), "dashboard", process)
    assert place.said("dashboard") == f"ready http://127.0.0.1:{port}\n"
