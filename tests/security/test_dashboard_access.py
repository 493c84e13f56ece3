"""Who gets into the dashboard, and who may change what: everything else is refused, and leaves no trace in the audit log."""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from keyturn.dashboard.access import LoginFiles, Role
from keyturn.dashboard.app import FORMS, PAGES, FormRoute
from keyturn.dashboard.guard import BODY_LIMIT, FIELD_LIMIT, HEADERS
from shared.clock import now_ms
from shared.pipeline import Pipeline
from shared.reading.audit import audit_log
from shared.settings import Settings
from shared.settings.dashboard import DashboardBlock
from tests.support.dashboard import SAME_ORIGIN, Visitor, visiting
from tests.support.servers import Databases

change_by_path = pytest.mark.parametrize("change", FORMS, ids=lambda change: change.path)


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    """The guard stands before any database: one is enough."""
    return databases.fresh_sqlite(tmp_path)


@pytest.fixture
async def visitor(pipe: Pipeline) -> AsyncIterator[Visitor]:
    async with visiting(pipe) as opened:
        yield opened


@pytest.fixture
async def admin(visitor: Visitor) -> Visitor:
    await visitor.enter(Role.ADMIN)
    return visitor


async def nothing_done(pipe: Pipeline) -> bool:
    return await audit_log(pipe.store, 10) == []


# -- logging in


async def test_a_login_token_works_once(visitor: Visitor, settings: Settings) -> None:
    token = LoginFiles(settings.data_dir).make_token("ann", Role.VIEW)
    first = await visitor.client.post("/login", data={"token": token}, headers=SAME_ORIGIN)
    assert first.status_code == 303
    visitor.client.cookies.clear()
    second = await visitor.client.post("/login", data={"token": token}, headers=SAME_ORIGIN)
    assert second.status_code == 403 and "used before" in second.text and "set-cookie" not in second.headers


async def test_a_login_token_is_of_no_use_after_an_hour(
    visitor: Visitor, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = LoginFiles(settings.data_dir).make_token("ann", Role.VIEW)
    later = now_ms() + 3_600_001
    monkeypatch.setattr("keyturn.dashboard.access.now_ms", lambda: later)
    answer = await visitor.client.post("/login", data={"token": token}, headers=SAME_ORIGIN)
    assert answer.status_code == 403


async def test_a_session_ends_after_half_a_day_and_by_logging_out(
    admin: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await admin.get("/")).status_code == 200
    later = now_ms() + 12 * 3_600_000 + 1
    with monkeypatch.context() as clock:
        clock.setattr("keyturn.dashboard.access.now_ms", lambda: later)
        assert (await admin.get("/")).status_code == 303
    secret = admin.login.secret if admin.login is not None else ""
    assert (await admin.post("/logout")).headers["location"] == "/login"
    assert LoginFiles(admin.pipe.settings.data_dir).find(secret) is None


async def test_a_made_up_cookie_or_token_opens_nothing(visitor: Visitor, settings: Settings) -> None:
    LoginFiles(settings.data_dir).make_token("ann", Role.ADMIN)
    for made_up in ("", "x", "../session", "é" * 40, "\x00"):
        answer = await visitor.client.post("/login", data={"token": made_up}, headers=SAME_ORIGIN)
        assert answer.status_code == 403
    visitor.client.cookies.set("keyturn_8081", "made-up")
    assert (await visitor.get("/")).status_code == 303


async def test_scripts_and_other_sites_never_see_the_session_cookie(visitor: Visitor, settings: Settings) -> None:
    token = LoginFiles(settings.data_dir).make_token("ann", Role.VIEW)
    answer = await visitor.client.post("/login", data={"token": token}, headers=SAME_ORIGIN)
    cookie = answer.headers["set-cookie"].lower()
    assert cookie.startswith("keyturn_8081=") and "httponly" in cookie and "samesite=lax" in cookie


async def test_only_their_owner_can_read_tokens_and_sessions(admin: Visitor, settings: Settings) -> None:
    LoginFiles(settings.data_dir).make_token("bob", Role.VIEW)
    directory = settings.data_dir / "dashboard"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    files = list(directory.iterdir())
    assert len(files) == 2 and {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert admin.login is not None
    assert not any(admin.login.secret in path.name or admin.login.secret in path.read_text() for path in files)


@pytest.mark.parametrize(
    "wanted",
    ["//evil.example/x", "//[", "///evil.example", "https://evil.example", "/\\evil.example", "javascript:1", "/\tx"],
)
async def test_a_login_leads_to_no_other_site(visitor: Visitor, settings: Settings, wanted: str) -> None:
    token = LoginFiles(settings.data_dir).make_token("ann", Role.VIEW)
    answer = await visitor.client.post("/login", data={"token": token, "next": wanted}, headers=SAME_ORIGIN)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


async def test_a_login_works_while_another_process_removes_what_is_too_old(settings: Settings) -> None:
    logins = LoginFiles(settings.data_dir)
    token = logins.make_token("ann", Role.VIEW)
    (settings.data_dir / "dashboard/session-0").symlink_to("gone")  # listed, and not there any more
    assert logins.exchange(token) is not None


async def test_what_is_too_old_to_log_in_with_is_removed(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    logins = LoginFiles(settings.data_dir)
    logins.make_token("ann", Role.VIEW)
    later = now_ms() + 3_600_001
    monkeypatch.setattr("keyturn.dashboard.access.now_ms", lambda: later)
    logins.make_token("bob", Role.VIEW)
    assert len(list((settings.data_dir / "dashboard").iterdir())) == 1


# -- looking


async def test_a_page_is_shown_to_nobody_who_has_not_logged_in(visitor: Visitor) -> None:
    for room in PAGES:
        answer = await visitor.get(room.path)
        assert answer.status_code == 303 and answer.headers["location"].startswith("/login") and not answer.content


async def test_settings_are_for_admins(visitor: Visitor) -> None:
    await visitor.enter(Role.OPERATE)
    assert (await visitor.get("/settings")).status_code == 403


async def test_a_foreign_host_name_is_not_answered(admin: Visitor) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example:8081", "", "localhost.:8081", "evil@127.0.0.1"):
        for path in ("/", "/login", "/static/keyturn.css", "/live", "/healthz/", "/healthz/x", "//healthz"):
            answer = await admin.client.get(path, headers={"host": host})
            assert answer.status_code == 421, path


async def test_under_a_foreign_host_name_the_dashboard_says_that_it_lives_and_nothing_else(admin: Visitor) -> None:
    for host in ("10.244.1.17:8081", "evil.example", ""):
        asked, head = [
            await admin.client.request(method, "/healthz", headers={"host": host}) for method in ("GET", "HEAD")
        ]
        assert (asked.status_code, asked.text, head.status_code) == (200, "alive\n", 200)
        assert not {"set-cookie", "location", "access-control-allow-origin"} & asked.headers.keys()
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert (await admin.client.request(method, "/healthz", headers={"host": host})).status_code == 421, method


async def test_names_of_this_machine_and_of_the_settings_are_answered(settings: Settings, pipe: Pipeline) -> None:
    named = settings.model_copy(update={"dashboard": DashboardBlock(hosts=("ops.example.org",))})
    object.__setattr__(pipe, "settings", named)
    async with visiting(pipe) as visitor:
        for host in ("localhost:8081", "127.0.0.1", "[::1]:8081", "OPS.example.org"):
            assert (await visitor.client.get("/login", headers={"host": host})).status_code == 200, host


async def test_every_answer_forbids_foreign_code_frames_and_caches(admin: Visitor) -> None:
    for answer in (
        await admin.get("/"),
        await admin.get("/login"),
        await admin.get("/nowhere"),
        await admin.post("/dead/one"),
        await admin.client.post("/dead/one"),
        await admin.client.get("/", headers={"host": "evil.example"}),
    ):
        for name, value in HEADERS.items():
            assert answer.headers[name] == value, (answer.url, name)
        assert "unsafe" not in answer.headers["content-security-policy"]


# -- changing


@change_by_path
async def test_a_change_by_get_is_refused(admin: Visitor, change: FormRoute) -> None:
    assert (await admin.get(change.path)).status_code == 405
    assert await nothing_done(admin.pipe)


@change_by_path
async def test_a_change_without_a_session_is_refused(visitor: Visitor, change: FormRoute) -> None:
    assert (await visitor.post(change.path, form_token="x", key="k", id="1")).status_code == 403
    assert await nothing_done(visitor.pipe)


@change_by_path
async def test_a_change_without_the_form_token_of_its_session_is_refused(admin: Visitor, change: FormRoute) -> None:
    for token in ({"form_token": ""}, {"form_token": "x"}, {"form_token": "é"}, {}):
        data = {"key": "k", "id": "1", **token}
        assert (await admin.client.post(change.path, data=data, headers=SAME_ORIGIN)).status_code == 403
    assert await nothing_done(admin.pipe)


FOREIGN: tuple[dict[str, str], ...] = (
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "none"},
    {"sec-fetch-site": "cross-site", "origin": "http://127.0.0.1:8081"},
    {"origin": "https://evil.example"},
    {"origin": "http://127.0.0.1:9999"},
    {"origin": "null"},
    {},
)


@change_by_path
async def test_a_change_from_another_site_is_refused(admin: Visitor, change: FormRoute) -> None:
    assert admin.login is not None
    data = {"key": "k", "id": "1", "form_token": admin.login.form_token}
    for headers in FOREIGN:
        assert (await admin.client.post(change.path, data=data, headers=headers)).status_code == 403, headers
    assert await nothing_done(admin.pipe)


async def test_a_browser_without_fetch_metadata_shows_its_origin(admin: Visitor) -> None:
    assert admin.login is not None
    data = {"form_token": admin.login.form_token}
    answer = await admin.client.post("/logout", data=data, headers={"origin": "http://127.0.0.1:8081"})
    assert answer.status_code == 303


@change_by_path
async def test_a_change_under_a_foreign_host_name_is_refused(admin: Visitor, change: FormRoute) -> None:
    assert admin.login is not None
    data = {"key": "k", "id": "1", "form_token": admin.login.form_token}
    headers = {"host": "evil.example", "origin": "http://evil.example"}
    assert (await admin.client.post(change.path, data=data, headers=headers)).status_code == 421
    assert await nothing_done(admin.pipe)


@pytest.mark.parametrize("role", [Role.VIEW, Role.OPERATE])
async def test_a_change_by_a_lower_role_is_refused(visitor: Visitor, role: Role) -> None:
    await visitor.enter(role)
    above = [change for change in FORMS if not role.may(change.role)]
    assert len(above) >= 2
    for change in above:
        assert (await visitor.post(change.path, key="k", id="1")).status_code == 403, change.path
    assert await nothing_done(visitor.pipe)


def test_most_changes_need_more_than_looking() -> None:
    assert [change.path for change in FORMS if change.role is Role.VIEW] == ["/logout"]


async def test_a_form_that_is_too_large_or_no_form_is_refused(admin: Visitor) -> None:
    assert admin.login is not None
    large = {"form_token": admin.login.form_token, "ids": "1" * BODY_LIMIT}
    assert (await admin.client.post("/dead/bulk/run", data=large, headers=SAME_ORIGIN)).status_code == 413
    answer = await admin.client.post("/dead/bulk/run", json={"ids": "1"}, headers=SAME_ORIGIN)
    assert answer.status_code == 415
    assert await nothing_done(admin.pipe)


@pytest.mark.parametrize(
    "host", ["127.0.0.1:x", "[::1", "[::1]x", "localhost:1@evil.example", "localhost/", "localhost:123456"]
)
async def test_a_host_that_is_not_written_as_one_is_refused(visitor: Visitor, host: str) -> None:
    assert (await visitor.client.get("/", headers={"host": host})).status_code == 421


async def test_a_request_that_no_browser_sends_is_refused_and_causes_no_error(visitor: Visitor) -> None:
    strange_origin = await visitor.client.post("/login", data={"token": "x"}, headers={"origin": "http://["})
    assert strange_origin.status_code == 403
    form = {"content-type": "application/x-www-form-urlencoded", **SAME_ORIGIN}
    many_fields = await visitor.client.post("/login", content=b"a&" * (FIELD_LIMIT + 1), headers=form)
    assert many_fields.status_code == 413
    assert (await visitor.client.get("/login?next=//[")).status_code == 200
    assert (await visitor.client.get("/", headers={"host": "localhost:99999"})).status_code == 303
