"""Where settings are written, `.env` and `keyturn.toml` of a directory, and how one of them is changed. Comments and settings
that nobody asked to change stay as they are."""

from __future__ import annotations

import fcntl
import os
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import orjson
import tomlkit
from tomlkit.exceptions import TOMLKitError

from shared.errors import ConfigurationError
from shared.setting_values import FILE_ENCODING, PREFIX
from shared.settings.dotenv_file import DotenvFile
from shared.value import value
from shared.whole_files import OWNER_ONLY, NewContent, replace_files

Content = str | Sequence[str]


class Where(Enum):
    """Who says what a setting is. The first of these that has it wins."""

    ENVIRONMENT = "the environment"
    DOTENV = ".env"
    TOML = "keyturn.toml"


@value
class Present:
    """A setting as it is written now."""

    content: Content
    where: Where


def variable(block: str, name: str) -> str:
    """The environment's name for a setting; `block` is empty for one that stands in none."""
    return f"{PREFIX}{f'{block}__' if block else ''}{name}".upper()


class SettingsFiles:
    """The two files of a directory, as they were when this was made. Nothing is written before `write`."""

    def __init__(self, directory: Path) -> None:
        self._paths = {Where.DOTENV: directory / ".env", Where.TOML: directory / "keyturn.toml"}
        self._directory = directory
        self._read = {where: _text(path) for where, path in self._paths.items()}
        self._dotenv = DotenvFile(self._read[Where.DOTENV])
        try:
            self._toml = tomlkit.parse(self._read[Where.TOML])
        except TOMLKitError as error:
            raise ConfigurationError(f"keyturn.toml: {error}") from None
        self._changed: set[Where] = set()
        self._replaced: dict[
            Path, tuple[NewContent, NewContent | None]
        ] = {}  # what was written, and what was there before

    def present(self, block: str, name: str) -> Present | None:
        """What a setting is now; None where nobody says."""
        wanted = variable(block, name)
        for written, content in os.environ.items():
            if written.upper() == wanted:
                return Present(content, Where.ENVIRONMENT)
        if (line := self._dotenv.get(wanted)) is not None:
            return Present(line, Where.DOTENV)
        table: Any = self._toml.unwrap()
        if block and not isinstance(table := table.get(block, {}), Mapping):
            raise _no_table(block)
        found = table.get(name)
        if isinstance(found, list):
            return Present(tuple(map(str, found)), Where.TOML)
        return Present(str(found), Where.TOML) if found is not None else None

    def change(self, block: str, name: str, content: Content, *, secret: bool) -> Where:
        """Set it where it will be read: secrets in `.env`, and others too where `.env` has them already, because it wins.
        ConfigurationError for what cannot be written."""
        wanted = variable(block, name)
        where = Where.DOTENV if secret or self._dotenv.get(wanted) is not None else Where.TOML
        if where is Where.DOTENV:
            self._dotenv.set(wanted, _flat(content))
        else:
            self._change_toml(block, name, content)
        self._changed.add(where)
        return where

    def write(self) -> None:
        """Write what was changed, all of it or nothing. `.env` is for its owner alone afterwards. ConfigurationError where somebody
        else changed one of the files meanwhile: their changes stay."""
        with _locked(self._directory):
            self._write()

    def undo(self) -> None:
        """Put back what `write` replaced; nothing, where it did not write. ConfigurationError where somebody else changed one of
        the files meanwhile: then all stay as they are."""
        with _locked(self._directory):
            for path, (written, _) in self._replaced.items():
                if _text(path) != written.text:
                    raise ConfigurationError(f"{path.name} was changed meanwhile: what was written to it stays there")
            try:
                replace_files({path: before for path, (_, before) in self._replaced.items() if before is not None})
                for path, (_, before) in self._replaced.items():
                    if before is None:
                        path.unlink()
            except OSError as error:
                names = " and ".join(path.name for path in self._replaced)
                raise ConfigurationError(f"{names} cannot be put back ({error.strerror})") from None
            self._replaced = {}

    def _write(self) -> None:
        for where in self._changed:
            if _text(path := self._paths[where]) != self._read[where]:
                raise ConfigurationError(f"{path.name} was changed meanwhile; nothing was changed: do it again")
        files = {}
        if Where.DOTENV in self._changed:
            files[self._paths[Where.DOTENV]] = NewContent(self._dotenv.text, OWNER_ONLY)
        if Where.TOML in self._changed:
            text = tomlkit.dumps(self._toml)
            assert tomllib.loads(text) == self._toml.unwrap(), "keyturn.toml would say something else"
            files[self._paths[Where.TOML]] = NewContent(text)
        try:
            before = {path: _content(path) for path in files}
            replace_files(files)
        except OSError as error:
            names = " and ".join(path.name for path in files)
            raise ConfigurationError(f"{names} cannot be written ({error.strerror}); nothing was changed") from None
        self._replaced = {path: (written, before[path]) for path, written in files.items()}

    def _change_toml(self, block: str, name: str, content: Content) -> None:
        table: Any = self._toml
        if block:
            if block not in self._toml:
                if self._toml.as_string().strip():
                    self._toml.add(tomlkit.nl())
                self._toml.add(block, tomlkit.table())
            table = self._toml[block]
            if not isinstance(table, Mapping):
                raise _no_table(block)
        table[name] = content if isinstance(content, str) else list(content)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One process at a time compares and writes the files of a directory. The lock ends with the process."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _no_table(block: str) -> ConfigurationError:
    return ConfigurationError(f"keyturn.toml: {block} is no table")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding=FILE_ENCODING)
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path.name} cannot be read: {type(error).__name__}") from None


def _content(path: Path) -> NewContent | None:
    """A file as it is; None where there is none."""
    if not path.exists():
        return None
    return NewContent(path.read_bytes().decode(), stat.S_IMODE(path.stat().st_mode))


def _flat(content: Content) -> str:
    """A list is written with commas; as JSON where an item could not be told apart so."""
    if isinstance(content, str):
        return content
    if any("," in item or item != item.strip() or item.startswith("[") for item in content):
        return orjson.dumps(list(content)).decode()
    return ",".join(content)
