"""A `.env` file as text, and how one variable in it is changed. All other lines stay as they are."""

from __future__ import annotations

import io
import re

from dotenv.parser import parse_stream

from shared.errors import ConfigurationError
from shared.value import value

_BARE = re.compile(r"[A-Za-z0-9_+./:=@,*-]+")  # needs no quotes
_BEFORE = re.compile(r"\s*(?:export[^\S\r\n]+)?")  # what stands before a variable's name


@value
class _Lines:
    """A variable with all of its lines; a comment has no name."""

    name: str
    content: str
    text: str


class DotenvFile:
    """The variables of a `.env` file, in order. Names are compared in capitals, as settings are."""

    def __init__(self, text: str) -> None:
        self._lines = [
            _Lines((found.key or "").upper(), found.value or "", found.original.string)
            for found in parse_stream(io.StringIO(text if text.endswith("\n") or not text else f"{text}\n"))
        ]

    def get(self, name: str) -> str | None:
        """What a variable is; of several lines the last one counts."""
        return next((lines.content for lines in reversed(self._lines) if lines.name == name), None)

    def set(self, name: str, content: str) -> None:
        """Change a variable in its place, or add it at the end."""
        if not content.isprintable() or "${" in content:  # the latter would be read as another variable's name
            raise ConfigurationError(
                f"{name} cannot be written to .env: it holds ${{ or a character that cannot be seen"
            )
        places = [place for place, lines in enumerate(self._lines) if lines.name == name]
        if not places:
            self._lines.append(_Lines(name, content, f"{name}={_quoted(content)}\n"))
            return
        for place in places:
            before = _BEFORE.match(self._lines[place].text)
            assert before is not None
            self._lines[place] = _Lines(name, content, f"{before[0]}{name}={_quoted(content)}\n")

    @property
    def text(self) -> str:
        return "".join(lines.text for lines in self._lines)


def _quoted(content: str) -> str:
    if _BARE.fullmatch(content):
        return content
    escaped = content.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
