"""What stands before every page: which Host it was asked under, who asks, from where, and whether their role is enough.

| check | a request without it |
|---|---|
| Host is on the allow list, so no foreign name can be pointed at this address (DNS rebinding); a GET of /healthz needs none | 421 |
| a session cookie | to the login page, or 403 for a change |
| a change is a POST | 405 |
| a change comes from our own page: `Sec-Fetch-Site: same-origin`, or Origin = Host where a browser sends none | 403 |
| a change carries the form token of its session | 403 |
| the role is enough | 403 |
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from urllib.parse import parse_qs, quote

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Message, Receive, Scope, Send

from keyturn.dashboard.access import Login, LoginFiles, Role
from shared.codec import storable
from shared.errors import PipelineError
from shared.value import value

BODY_LIMIT = 256 * 1024
FIELD_LIMIT = 5000
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[\w.-]+))(?::(?P<port>\d{1,5}))?", re.ASCII)
FORM = "application/x-www-form-urlencoded"
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types keyturn",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Refused(PipelineError):
    """A request that the guard does not let through, with its HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@value
class Form:
    """The fields of a form, each with all of its values."""

    fields: Mapping[str, list[str]]

    def one(self, name: str) -> str:
        """The first value of a field, without characters that no store keeps; empty where there is none."""
        return storable(self.fields.get(name, [""])[0])


class Guarded:
    """The app behind the Host check, with the headers that every answer carries."""

    def __init__(self, app: Starlette, hosts: Iterable[str]) -> None:
        self._app = app
        self.state = app.state
        self._hosts = frozenset(host.lower().strip("[]") for host in (*LOOPBACK, *hosts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                has = {name for name, _ in message["headers"]}
                more = [(name.encode(), text.encode()) for name, text in HEADERS.items() if name.encode() not in has]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        if not _is_probe(scope) and _hostname(Request(scope).headers.get("host", "")) not in self._hosts:
            text = "this dashboard is not served under that name: see DASHBOARD__HOSTS\n"
            await Response(text, 421, media_type="text/plain")(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)


def login_of(request: Request, logins: LoginFiles) -> Login | None:
    """Who asks, by the session cookie."""
    secret = request.cookies.get(cookie_name(request), "")
    return logins.find(secret) if secret else None


def cookie_name(request: Request) -> str:
    """Cookies are not separated by port, so the name is."""
    return f"keyturn_{_port(request.headers.get('host', ''))}"


def to_login(request: Request) -> Response:
    """The login page, which leads back to where the person was going."""
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse("/login" + ("" if wanted == "/" else f"?next={quote(wanted, safe='')}"), 303)


def check_role(login: Login, needed: Role) -> None:
    if not login.role.may(needed):
        raise Refused(403, f"this needs the role {needed}; you are logged in with the role {login.role}")


def check_same_origin(request: Request) -> None:
    """Refused unless the request comes from a page of ours."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        if site != "same-origin":
            raise Refused(403, "a change must come from the dashboard's own page")
        return
    _, _, origin = request.headers.get("origin", "").partition("://")
    if not origin or origin.lower() != request.headers.get("host", "").lower():
        raise Refused(403, "a change must come from the dashboard's own page")


async def read_form(request: Request) -> Form:
    """The form of a POST; Refused for another kind of body and for one that is too large."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise Refused(415, "a form is expected")
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > BODY_LIMIT:
                raise Refused(413, "the form is too large")
    except ClientDisconnect:
        raise Refused(400, "the form is not complete") from None
    try:
        return Form(parse_qs(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=FIELD_LIMIT))
    except ValueError:
        raise Refused(413, "the form has too many fields") from None


def check_form_token(login: Login, form: Form) -> None:
    if not hmac.compare_digest(form.one("form_token").encode(), login.form_token.encode()):
        raise Refused(403, "the form is from another session: load the page again")


def local_path(text: str) -> str:
    """A path of this dashboard; the overview for anything that would lead elsewhere."""
    leads_away = not text.startswith("/") or text.startswith("//") or "\\" in text
    return "/" if leads_away or any(ord(char) < 32 for char in text) else text


def _is_probe(scope: Scope) -> bool:
    """Whether somebody asks if the process lives. A kubelet asks by the pod's address, which nobody can list beforehand."""
    return bool(scope["path"] == "/healthz" and scope["method"] in ("GET", "HEAD"))


def _hostname(host: str) -> str:
    """The name in a Host header, without its port; empty where it is not written as one."""
    found = _HOST.fullmatch(host.lower())
    return (found["address"] or found["name"]) if found is not None else ""


def _port(host: str) -> str:
    """The port in a Host header; 0 where it names none."""
    found = _HOST.fullmatch(host.lower())
    return found["port"] or "0" if found is not None else "0"


Endpoint = Callable[[Request], Awaitable[Response]]
