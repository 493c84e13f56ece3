"""What every page works with: the pipeline, who asks, and how an answer is made."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from keyturn.dashboard.access import Login, LoginFiles, Role
from keyturn.dashboard.forgetting import Forgettings
from keyturn.dashboard.guard import Form, local_path
from keyturn.dashboard.render import render
from keyturn.dashboard.watch import Watch
from shared.codec import storable
from shared.operating.audit import Action, Operator, audited
from shared.pipeline import Pipeline
from shared.value import value

T = TypeVar("T")
ROWS = 50  # of a page
NOTES_KEPT = 5
ROOMS = (
    ("/", "Overview"),
    ("/conversations", "Conversations"),
    ("/messages", "Messages"),
    ("/dead", "Dead letters"),
    ("/deliveries", "Deliveries"),
    ("/sessions", "Sessions"),
    ("/schedules", "Schedules"),
    ("/questions", "Questions"),
    ("/pauses", "Pauses"),
    ("/queues", "Queues"),
    ("/workers", "Workers"),
    ("/usage", "Usage"),
    ("/audit", "Audit log"),
    ("/people", "People"),
    ("/settings", "Settings"),
)
FOR_ADMINS = ("/people", "/settings")
LIST_OF = {
    "/conversation": "/conversations",
    "/session": "/sessions",
    "/schedule": "/schedules",
    "/question": "/questions",
}


class Desk:
    """What outlives a request: the pipeline, the logins, the watch, and what a person is to be told on their next page."""

    def __init__(self, pipe: Pipeline) -> None:
        self.pipe = pipe
        self.logins = LoginFiles(pipe.settings.data_dir)
        self.watch = Watch(pipe)
        self.forgettings = Forgettings()
        self.followers = 0  # pages that are followed live now
        self.notes: defaultdict[str, deque[tuple[str, str]]] = defaultdict(lambda: deque(maxlen=NOTES_KEPT))

    def page(self, template: str, visit: Visit, **values: Any) -> Response:
        """A page for whoever asks, with what they are to be told. Tells it once."""
        return self.answer(template, visit, 200, **values)

    def answer(self, template: str, visit: Visit, status: int, **values: Any) -> Response:
        notes = tuple(self.notes.pop(visit.login.secret, ()))
        common = {
            "login": visit.login,
            "may": rights(visit.login),
            "rooms": [room for room in ROOMS if room[0] not in FOR_ADMINS or visit.login.role.may(Role.ADMIN)],
            "room": LIST_OF.get(room := "/" + visit.request.url.path.split("/")[1], room),
            "here": visit.here,
            "notes": notes,
            "paused": self.watch.pauses,
        }
        return HTMLResponse(render(template, {**common, **values}), status)

    def done(self, visit: Visit, text: str, back: str | None = None, *, mood: str = "good") -> Response:
        """Back to a page of ours, which says what came of the form."""
        self.notes[visit.login.secret].append((mood, text))
        return RedirectResponse(local_path(back or visit.form.one("back") or "/"), 303)

    async def act(self, visit: Visit, action: str, target: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do something in the name of whoever asks, with a row in the audit log."""
        return await audited(self.pipe.store, self.operator(visit), Action(action, target), work)

    @staticmethod
    def operator(visit: Visit) -> Operator:
        """Who asks, as the audit log names them."""
        return Operator(visit.login.name, visit.login.role.value)


def rights(login: Login) -> dict[str, bool]:
    """For each role, whether what it may do is offered to whoever is logged in."""
    return {role.value: login.role.may(role) for role in Role}


@value
class Visit:
    """One request of somebody who is logged in. The form of a GET is empty."""

    request: Request
    login: Login
    form: Form

    def asked(self, name: str) -> str:
        """A field of the query; empty where there is none."""
        return storable(self.request.query_params.get(name, "")[:2000])

    def number(self, name: str, default: int) -> int:
        """A number of the query; the default for anything else."""
        text = self.asked(name)
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else default

    @property
    def here(self) -> str:
        """The path and query of this page, to come back to. Nobody can come back to what a form was answered with."""
        if self.request.method == "POST":
            return "/"
        url = self.request.url
        return url.path + (f"?{url.query}" if url.query else "")


PageFunction = Callable[[Desk, Visit], Awaitable[Response]]
