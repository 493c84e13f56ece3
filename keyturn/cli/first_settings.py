"""The text of a first `keyturn.toml`: what was chosen, and beside it the settings that people change next, as comments with
their defaults. Names, defaults and explanations come from the settings classes, so they are true."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import tomlkit
from pydantic import BaseModel

from shared.platforms import CONNECTING
from shared.settings import Settings
from shared.settings.descriptions import description

WIDTH = 100
_SHOWN: Mapping[str, Mapping[str, Any]] = {  # by table; a value stands for a setting without a default
    "": {
        "agent": None,
        "allowed_users": None,
        "admin_users": None,
        "timezone": None,
        "turn_timeout_seconds": None,
        "max_attempts": None,
        "data_dir": None,
    },
    "llm": {"model": "openai:gpt-5", "base_url": "http://localhost:11434/v1", "system_prompt": None},
    "command": {"line": "python3 mybot.py"},
    "http": {"url": "http://localhost:9000/turn"},
    "reset": {"mode": None, "idle_minutes": None},
    "budget": {"user_tokens_per_day": 200_000},
}
_HEAD = f"""\
# Settings of this Keyturn, made by `keyturn init`. What stands behind a # is a comment: a line such as
# `# name = value` shows a default or an example, and counts when you take the # away.
# docs/settings.md has all settings. Secrets belong into .env, not here.
# `keyturn connect PLATFORM` adds a platform: {", ".join(CONNECTING)}.
"""


def first_settings(chosen: Mapping[str, Mapping[str, str]]) -> str:
    """The text, with what was chosen by table. Accepted by the settings as it stands, and with every comment a setting."""
    parts = [_HEAD]
    for table, shown in _SHOWN.items():
        kind = _kind(table)
        if table:
            parts.append(f"[{table}]\n")
        parts += [_setting(kind, name, example, chosen.get(table, {})) for name, example in shown.items()]
    return "\n".join(parts)


def _kind(table: str) -> type[BaseModel]:
    if not table:
        return Settings
    annotation: Any = Settings.model_fields[table].annotation
    return next(kind for kind in (annotation, *get_args(annotation)) if isinstance(kind, type))


def _setting(kind: type[BaseModel], name: str, example: Any, chosen: Mapping[str, str]) -> str:
    field = kind.model_fields[name]
    about = "\n".join(_wrapped(description(kind, name)))
    if name in chosen:
        return f"{about}\n{name} = {_written(chosen[name])}\n"
    return f"{about}\n# {name} = {_written(field.get_default() if example is None else example)}\n"


def _wrapped(text: str) -> Iterator[str]:
    yield from textwrap.wrap(" ".join(text.split()), WIDTH, initial_indent="# ", subsequent_indent="# ")


def _written(content: Any) -> str:
    if isinstance(content, tuple):
        content = list(content)
    return tomlkit.item(content if isinstance(content, str | int | float | bool | list) else str(content)).as_string()
