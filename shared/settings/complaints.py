"""What is wrong with the settings, in words: the name as it is written, where it stands, a near name that exists.

Values are never repeated: one that was written in the wrong place may be a secret."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

import orjson
from dotenv import dotenv_values
from pydantic import BaseModel, ValidationError

from shared.setting_values import FILE_ENCODING

ENVIRONMENT, DOTENV, TOML = "the environment", ".env", "keyturn.toml"


class Complaints:
    """Knows the settings' names by the model, and where each is set by the environment and the files of this directory."""

    def __init__(self, model: type[BaseModel], prefix: str) -> None:
        self._model = model
        self._prefix = prefix

    def about(self, error: ValidationError) -> str:
        """One clause for each thing that is wrong."""
        return "; ".join(self._clause(tuple(map(str, e["loc"])), e["type"], e["msg"]) for e in error.errors())

    def about_unknown(self, variables: Iterable[str]) -> str:
        """Variables that name no setting."""
        return "; ".join(self._unknown(self._parts(name)) for name in variables)

    def about_json(self, field: str) -> str:
        """A variable of this setting, or of a part of it, is to be JSON and is not."""
        for place, names in ((ENVIRONMENT, os.environ), (DOTENV, _dotenv())):
            for name, text in names.items():
                loc = self._parts(name)
                is_ours = name.upper() == self._variable(loc) and loc[0] == field
                if is_ours and self._is_json_wanted(loc) and not _is_json(text):
                    return f'{name.upper()} in {place}: it is no JSON, such as {{"name": "value"}}'
        return f"{self._variable([field])}: it is no JSON"

    def _is_json_wanted(self, loc: Sequence[str]) -> bool:
        """Whether it is the setting itself, or a block or a mapping inside it. Lists inside may be written with commas."""
        kind: Any = self._model
        for part in loc:
            if not _is_block(kind) or part not in kind.model_fields:
                return False
            kind = kind.model_fields[part].annotation
        return len(loc) == 1 or _is_block(kind) or get_origin(kind) is dict

    def _clause(self, loc: tuple[str, ...], kind: str, text: str) -> str:
        text = text.removeprefix("Value error, ")  # pydantic's words before ours
        if not loc:
            return f"settings: {text}"
        if loc[0].startswith(self._prefix.lower()):  # as .env has it
            loc = self._parts(loc[0])
        if kind == "extra_forbidden":
            return self._unknown(loc)
        place, spelled = self._where(loc)
        return f"{spelled(loc[-1])}{f' in {place}' if place else ''}: {text}"

    def _unknown(self, loc: Sequence[str]) -> str:
        place, spelled = self._where(loc)
        near = difflib.get_close_matches(loc[-1], _names_in(self._model, loc[:-1]), n=1)
        suggestion = f"; did you mean {spelled(near[0])}?" if near else ""
        return f"unknown setting {spelled(loc[-1])} in {place or 'the settings'}{suggestion}"

    def _where(self, loc: Sequence[str]) -> tuple[str | None, Callable[[str], str]]:
        """The place that sets it, and how a name in the same block is spelled there. A block may be written as JSON."""
        for place, names in ((ENVIRONMENT, os.environ), (DOTENV, _dotenv())):
            written = {name.upper() for name in names}
            if self._variable(loc) in written:
                return place, lambda name: self._variable([*loc[:-1], name])
            for length in range(len(loc) - 1, 0, -1):
                block, inside = self._variable(loc[:length]), loc[length:-1]
                if block in written:
                    return place, lambda name, block=block, inside=inside: f"{'.'.join([*inside, name])} of {block}"
        if _is_in(_toml(), loc):
            return TOML, lambda name: ".".join([*loc[:-1], name])
        return None, lambda name: self._variable([*loc[:-1], name])

    def _variable(self, loc: Sequence[str]) -> str:
        return self._prefix + "__".join(loc).upper()

    def _parts(self, variable: str) -> tuple[str, ...]:
        return tuple(variable.lower().removeprefix(self._prefix.lower()).split("__"))


def _names_in(kind: Any, path: Sequence[str]) -> list[str]:
    """The names that a block may hold; none for a block that is free to name things."""
    for n, part in enumerate(path):
        if not _is_block(kind):  # a mapping by name or a list: the part is a key of the user's own
            inner = next((argument for argument in get_args(kind) if _is_block(argument)), None)
            return _names_in(inner, path[n + 1 :]) if inner is not None else []
        if part not in kind.model_fields:
            return []
        kind = kind.model_fields[part].annotation
    return list(kind.model_fields) if _is_block(kind) else []


def _is_block(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _is_json(text: str | None) -> bool:
    try:
        orjson.loads(text or "")
    except orjson.JSONDecodeError:
        return False
    return True


def _is_in(table: Any, loc: Sequence[str]) -> bool:
    for part in loc:
        if isinstance(table, list) and part.isdigit() and int(part) < len(table):
            table = table[int(part)]
        elif isinstance(table, Mapping) and part in table:
            table = table[part]
        else:
            return False
    return True


def _dotenv() -> Mapping[str, str | None]:
    return dotenv_values(DOTENV, encoding=FILE_ENCODING) if Path(DOTENV).is_file() else {}


def _toml() -> Mapping[str, Any]:
    try:
        return tomllib.loads(Path(TOML).read_text(FILE_ENCODING))
    except (OSError, ValueError):
        return {}
