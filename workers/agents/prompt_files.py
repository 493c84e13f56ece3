"""What the model is told before every conversation: the persona, then the system prompt, from files or from the settings.

The files are looked at before each turn, and read when they have changed, so nobody restarts anything. A file that cannot be read any
more, or that was emptied, changes nothing: turns go on with what it said before, and the log says so once. At the start there is
nothing to go on with, so the agent does not start.
"""

from __future__ import annotations

import os
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING

from shared import log
from shared.errors import ConfigurationError

if TYPE_CHECKING:
    from shared.settings import LlmSettings

LARGEST_BYTES = 100_000

Seen = tuple[int, int, int]  # what a file looks like from outside: another one, when it was written, how long it is


class PromptFile:
    """The text of one file. A ConfigurationError says why it cannot be used."""

    def __init__(self, setting: str, path: Path) -> None:
        self._setting = setting
        self._path = path.expanduser().absolute()
        self._seen = self._look()
        self._text = self._read()

    @property
    def text(self) -> str:
        """What the file says now, or said last."""
        try:
            seen = self._look()
        except ConfigurationError:
            seen = (0, 0, 0)
        if seen != self._seen:
            self._seen = seen  # also if it cannot be read: it is complained of once
            try:
                self._text = self._read()
                log.get().info("prompt file read again", file=str(self._path))
            except ConfigurationError as error:
                log.get().warning("prompt file not read, its last text is used", reason=str(error))
        return self._text

    def _look(self) -> Seen:
        try:
            found = os.stat(self._path)
        except OSError as error:
            raise self._complaint(f"cannot be read: {error.strerror}") from None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _read(self) -> str:
        try:
            with open(self._path, "rb", opener=_without_waiting) as opened:
                if not S_ISREG(os.fstat(opened.fileno()).st_mode):
                    raise self._complaint("is no file")
                data = opened.read(LARGEST_BYTES + 1)
        except IsADirectoryError:
            raise self._complaint("is no file") from None
        except OSError as error:
            raise self._complaint(f"cannot be read: {error.strerror}") from None
        if len(data) > LARGEST_BYTES:
            raise self._complaint(f"is larger than {LARGEST_BYTES:,} bytes")
        try:
            text = data.decode("utf-8-sig").strip()
        except UnicodeDecodeError:
            raise self._complaint("is not text in UTF-8") from None
        if not text:
            raise self._complaint("is empty")
        return text

    def _complaint(self, what: str) -> ConfigurationError:
        return ConfigurationError(f"{self._setting}: {self._path} {what}")


def _without_waiting(path: str, flags: int) -> int:
    """Open a file. A pipe, which may have taken its place just now, would make everybody wait for its writer."""
    return os.open(path, flags | os.O_NONBLOCK)


class SystemPrompt:
    """Persona and system prompt as one text. The same bytes as long as the files are the same."""

    def __init__(self, config: LlmSettings) -> None:
        persona, prompt = config.persona_file, config.system_prompt_file
        self._persona = PromptFile("LLM__PERSONA_FILE", persona) if persona is not None else None
        self._prompt = PromptFile("LLM__SYSTEM_PROMPT_FILE", prompt) if prompt is not None else None
        self._written = config.system_prompt

    @property
    def text(self) -> str:
        prompt = self._prompt.text if self._prompt is not None else self._written
        return f"{self._persona.text}\n\n{prompt}".strip() if self._persona is not None else prompt
