"""Logging in by a token that works once, and logging out."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from keyturn.dashboard import guard
from keyturn.dashboard.access import SESSION_LIFETIME
from keyturn.dashboard.desk import Desk, Visit
from keyturn.dashboard.render import render
from shared import log


def door(desk: Desk) -> guard.Endpoint:
    """The login page. A token stands in the URL's fragment, which no server, log or Referer ever sees."""

    async def show(request: Request) -> Response:
        wanted = guard.local_path(request.query_params.get("next", "/"))
        if guard.login_of(request, desk.logins) is not None:
            return RedirectResponse(wanted, 303)
        return HTMLResponse(render("login.html", {"wanted": wanted, "wrong": False}))

    return show


def enter(desk: Desk) -> guard.Endpoint:
    """Exchanges a token for a session."""

    async def exchange(request: Request) -> Response:
        guard.check_same_origin(request)
        form = await guard.read_form(request)
        wanted = guard.local_path(form.one("next") or "/")
        login = desk.logins.exchange(form.one("token").strip())
        if login is None:
            log.get().warning("dashboard login refused")
            return HTMLResponse(render("login.html", {"wanted": wanted, "wrong": True}), 403)
        log.get().info("dashboard login", name=login.name, role=login.role.value)
        response = RedirectResponse(wanted, 303)
        response.set_cookie(
            guard.cookie_name(request),
            login.secret,
            max_age=int(SESSION_LIFETIME.total_seconds()),
            httponly=True,
            samesite="lax",
            secure=request.url.scheme == "https",
        )
        return response

    return exchange


async def leave(desk: Desk, visit: Visit) -> Response:
    """Ends the session, for every tab of it."""
    desk.logins.end(visit.login.secret)
    response = RedirectResponse("/login", 303)
    response.delete_cookie(guard.cookie_name(visit.request))
    return response
