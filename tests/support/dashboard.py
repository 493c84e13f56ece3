"""The dashboard in a test's hands: log in, open pages, send their forms as a browser without script would."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import httpx

from keyturn.dashboard.access import Login, LoginFiles, Role
from keyturn.dashboard.app import build_app
from shared.pipeline import Pipeline

ADDRESS = "http://127.0.0.1:8081"
SAME_ORIGIN = {"sec-fetch-site": "same-origin"}


@dataclass
class Visitor:
    """A browser without script. `role` None: nobody has logged in."""

    pipe: Pipeline
    client: httpx.AsyncClient
    login: Login | None = None

    async def enter(self, role: Role, name: str = "ann") -> None:
        """Log in by a token, as a person does."""
        token = LoginFiles(self.pipe.settings.data_dir).make_token(name, role)
        answer = await self.client.post("/login", data={"token": token}, headers=SAME_ORIGIN)
        assert answer.status_code == 303, answer.text
        [(_, secret)] = self.client.cookies.items()
        self.login = LoginFiles(self.pipe.settings.data_dir).find(secret)
        assert self.login is not None

    async def get(self, path: str, **fields: object) -> httpx.Response:
        given = {name: str(value) for name, value in fields.items()}
        return await self.client.get(path, params=given or None)  # an empty query would replace that of the path

    async def page(self, path: str, **fields: object) -> Page:
        """A page that must be there."""
        answer = await self.get(path, **fields)
        assert answer.status_code == 200, answer.text
        return read_page(answer)

    async def post(self, path: str, **fields: object) -> httpx.Response:
        """A form as our own page sends it."""
        data = {name: str(value) for name, value in fields.items()}
        if self.login is not None:
            data.setdefault("form_token", self.login.form_token)
        return await self.client.post(path, data=data, headers=SAME_ORIGIN)

    async def act(self, path: str, **fields: object) -> Page:
        """Send a form, and give the page that it ends on."""
        answer = await self.post(path, **fields)
        assert answer.status_code in (200, 303), answer.text
        if answer.status_code == 303:
            answer = await self.client.get(answer.headers["location"])
            assert answer.status_code == 200, answer.text
        return read_page(answer)

    async def press(self, page: Page, button: str) -> Page:
        """Send the form on a page that has this button, with the values that it holds."""
        form = next(form for form in page.forms if button in form.buttons)
        answer = await self.client.post(form.action, data=form.fields, headers=SAME_ORIGIN)
        assert answer.status_code in (200, 303), answer.text
        if answer.status_code == 303:
            answer = await self.client.get(answer.headers["location"])
        return read_page(answer)


@asynccontextmanager
async def visiting(pipe: Pipeline) -> AsyncIterator[Visitor]:
    """The dashboard without a server around it: an exception that leaves the app fails the test."""
    app: Any = build_app(pipe)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=ADDRESS, timeout=60) as client:
        yield Visitor(pipe, client)


@dataclass
class FoundForm:
    action: str
    fields: dict[str, str] = field(default_factory=dict)
    buttons: list[str] = field(default_factory=list)


class Page(HTMLParser):
    """A page as a browser understands it: elements with their attributes, the text between them, forms."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.html = html
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.forms: list[FoundForm] = []
        self._within: list[str] = []
        self.feed(html)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.elements.append((tag, values))
        self._within.append(tag)
        if tag == "form":
            self.forms.append(FoundForm(values.get("action", "")))
        elif tag == "input" and values.get("type") == "hidden" and self.forms:
            self.forms[-1].fields[values["name"]] = values["value"]

    def handle_endtag(self, tag: str) -> None:
        if tag in self._within:
            while self._within.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if "button" in self._within and self.forms:
            self.forms[-1].buttons.append(data.strip())


def read_page(answer: httpx.Response) -> Page:
    return Page(answer.text)
