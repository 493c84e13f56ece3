"""The dashboard's routes: who may open each, and which of them change something."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import redis
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from keyturn.dashboard import guard
from keyturn.dashboard.access import Role
from keyturn.dashboard.desk import Desk, PageFunction, Visit
from keyturn.dashboard.guard import Form, Guarded, Refused
from keyturn.dashboard.pages import (
    audit,
    conversations,
    dead,
    deliveries,
    live,
    login,
    messages,
    overview,
    pauses,
    people,
    questions,
    queues,
    schedules,
    sessions,
    settings,
    usage,
)
from keyturn.dashboard.render import STATIC, render
from shared import log
from shared.errors import CannotDo, NotFound, PipelineError, Unavailable
from shared.pipeline import Pipeline
from shared.value import value


@value
class PageRoute:
    """A page that is looked at."""

    path: str
    show: PageFunction
    role: Role = Role.VIEW


@value
class FormRoute:
    """A form: what it does or reveals is refused by GET, from elsewhere, and without the session's form token."""

    path: str
    act: PageFunction
    role: Role = Role.OPERATE


PAGES = (
    PageRoute("/", overview.show),
    PageRoute("/live", live.follow),
    PageRoute("/conversations", conversations.search),
    PageRoute("/conversation", conversations.show),
    PageRoute("/messages", messages.show),
    PageRoute("/dead", dead.search),
    PageRoute("/dead/letter", dead.show),
    PageRoute("/deliveries", deliveries.show),
    PageRoute("/sessions", sessions.search),
    PageRoute("/session", sessions.show),
    PageRoute("/schedules", schedules.show),
    PageRoute("/schedule", schedules.show_one),
    PageRoute("/questions", questions.show),
    PageRoute("/question", questions.show_one),
    PageRoute("/people", people.show, Role.ADMIN),
    PageRoute("/pauses", pauses.show),
    PageRoute("/queues", queues.show),
    PageRoute("/workers", queues.show_workers),
    PageRoute("/usage", usage.show),
    PageRoute("/settings", settings.show, Role.ADMIN),
    PageRoute("/audit", audit.show),
)
FORMS = (
    FormRoute("/logout", login.leave, Role.VIEW),
    FormRoute("/conversation/read", conversations.read),
    FormRoute("/conversation/release", conversations.release),
    FormRoute("/conversation/stop", conversations.stop),
    FormRoute("/pauses/pause", pauses.pause),
    FormRoute("/pauses/resume", pauses.resume),
    FormRoute("/messages/drop", messages.drop),
    FormRoute("/deliveries/release", deliveries.release),
    FormRoute("/deliveries/drop", deliveries.drop),
    FormRoute("/dead/read", dead.read),
    FormRoute("/dead/one", dead.deal_with_one),
    FormRoute("/dead/edit", dead.edit_and_replay),
    FormRoute("/dead/bulk", dead.plan_bulk),
    FormRoute("/dead/bulk/run", dead.run_bulk),
    FormRoute("/session/read", sessions.read),
    FormRoute("/session/export", sessions.export),
    FormRoute("/session/delete", sessions.confirm_delete, Role.ADMIN),
    FormRoute("/session/delete/run", sessions.delete, Role.ADMIN),
    FormRoute("/schedules/add", schedules.add),
    FormRoute("/schedule/read", schedules.read),
    FormRoute("/schedule/pause", schedules.pause),
    FormRoute("/schedule/resume", schedules.resume),
    FormRoute("/schedule/run", schedules.run),
    FormRoute("/schedule/remove", schedules.confirm_remove, Role.ADMIN),
    FormRoute("/schedule/remove/run", schedules.remove, Role.ADMIN),
    FormRoute("/question/read", questions.read),
    FormRoute("/question/withdraw", questions.withdraw),
    FormRoute("/people/look", people.look, Role.ADMIN),
    FormRoute("/people/export", people.export, Role.ADMIN),
    FormRoute("/people/forget", people.forget, Role.ADMIN),
    FormRoute("/people/forget/follow", people.follow, Role.ADMIN),
)


def build_app(pipe: Pipeline, hosts: Iterable[str] = ()) -> Guarded:
    """The dashboard behind its guard. `hosts` are names that it may be asked under, beside this machine's own."""
    desk = Desk(pipe)
    app = Starlette(
        routes=[
            Route("/login", _answering(login.door(desk)), methods=["GET"]),
            Route("/login", _answering(login.enter(desk)), methods=["POST"]),
            Route("/static/{name}", _static, methods=["GET"]),
            Route("/healthz", _alive, methods=["GET"]),
            *(Route(room.path, _answering(_looking(desk, room)), methods=["GET"]) for room in PAGES),
            *(Route(change.path, _answering(_acting(desk, change)), methods=["POST"]) for change in FORMS),
        ],
        exception_handlers={HTTPException: _no_route},
        lifespan=_no_lifespan,
    )
    app.state.desk = desk
    app.state.stopping = asyncio.Event()  # set when open streams should end
    return Guarded(app, (*hosts, *pipe.settings.dashboard.hosts))


def _looking(desk: Desk, room: PageRoute) -> guard.Endpoint:
    async def endpoint(request: Request) -> Response:
        found = guard.login_of(request, desk.logins)
        if found is None:
            return guard.to_login(request)
        return await _shown(desk, Visit(request, found, Form({})), room.role, room.show)

    return endpoint


def _acting(desk: Desk, change: FormRoute) -> guard.Endpoint:
    async def endpoint(request: Request) -> Response:
        guard.check_same_origin(request)
        found = guard.login_of(request, desk.logins)
        if found is None:
            raise Refused(403, "you are not logged in")
        form = await guard.read_form(request)
        guard.check_form_token(found, form)
        return await _shown(desk, Visit(request, found, form), change.role, change.act)

    return endpoint


async def _shown(desk: Desk, visit: Visit, role: Role, function: PageFunction) -> Response:
    """The page, or a page in the same frame that says why it is not there."""
    try:
        await desk.watch.look_at_pauses()
        guard.check_role(visit.login, role)
        return await function(desk, visit)
    except Refused as error:
        return _trouble(desk, visit, error.status, "Not for this role", str(error))
    except NotFound as error:
        return _trouble(desk, visit, 404, "Not there", str(error))
    except CannotDo as error:
        return _trouble(desk, visit, 409, "That cannot be done", str(error))
    except (Unavailable, redis.RedisError) as error:
        text = str(error) if isinstance(error, Unavailable) else f"Redis: {type(error).__name__}"
        return _trouble(desk, visit, 503, "A store does not answer", f"{text}. This page needs it; try again.")


def _trouble(desk: Desk, visit: Visit, status: int, title: str, text: str) -> Response:
    return desk.answer("trouble.html", visit, status, title=title, text=text)


def _answering(endpoint: guard.Endpoint) -> guard.Endpoint:
    """The endpoint with its errors turned into answers: never a stack trace, never a secret."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Refused as error:
            log.get().warning("dashboard request refused", path=request.url.path[:200], reason=str(error))
            return _bare(error.status, str(error))
        except PipelineError as error:
            return _bare(503, str(error))
        except Exception as error:
            log.get().error("dashboard request failed", path=request.url.path[:200], exc_info=error)
            return _bare(500, "internal error: the log has it")

    return answer


def _bare(status: int, text: str) -> Response:
    return Response(render("bare.html", {"status": status, "text": text}), status, media_type="text/html")


async def _static(request: Request) -> Response:
    kind, content = STATIC.get(request.path_params["name"], ("", b""))
    if not kind:
        return _bare(404, "no such file")
    return Response(content, headers={"content-type": kind, "cache-control": "public, max-age=31536000, immutable"})


async def _alive(_: Request) -> Response:
    """Says nothing else: it is answered under every Host."""
    return PlainTextResponse("alive\n")


async def _no_route(_: Request, error: Any) -> Response:
    response = _bare(error.status_code, error.detail.lower())
    response.headers.update(error.headers or {})
    return response


@asynccontextmanager
async def _no_lifespan(_: Starlette) -> AsyncIterator[None]:
    yield
