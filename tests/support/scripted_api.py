"""A platform's API for tests of its sender: it answers as it was told, and remembers what it was asked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from shared.errors import PipelineError, RateLimited
from shared.messages import Part, Source
from shared.platforms.discord_limits import Route


def a_part(platform: str, chat: str = "1", chat_type: str = "dm", text: str = "hello", **about: Any) -> Part:
    source = Source(platform, chat, chat_type, user="7", thread=about.pop("thread", None))
    return Part(1, "out_1", f"agent:main:{platform}:dm:1", source, ("m1",), 1, 1, text, **about)


class Scripted:
    """Gives these answers one after another, and then empty ones. An error is raised."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, Any]] = []

    @property
    def routes(self) -> list[str]:
        return [what for what, _ in self.asked]

    async def call(self, what: Any, fields: Any = None, *_: Any, **__: Any) -> Any:
        return self._next(f"{what.method} {what.path}" if isinstance(what, Route) else what, fields)

    async def ask(self, what: str, fields: Any) -> Any:
        return self._next(what, dict(fields))

    async def post(self, number: str, fields: Any, **_: Any) -> Any:
        return self._next(number, fields)

    def wait(self, result: dict[str, Any], waits: int) -> RateLimited:
        return RateLimited(timedelta(seconds=result["retryAfterSeconds"] + waits))

    def _next(self, what: str, fields: Any) -> Any:
        self.asked.append((what, fields))
        answer = self._answers.pop(0) if self._answers else {}
        if isinstance(answer, PipelineError):
            raise answer
        return answer
