"""docs/settings.md, written from the settings classes and their docstrings by `./run docs`. A test keeps the page true."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from shared.platforms import PLATFORMS
from shared.settings import PREFIX, SECTIONS
from shared.settings.descriptions import description
from shared.value import value

PAGE = Path(__file__).parents[1] / "docs/settings.md"
_INTRODUCTION = f"""# Settings

This page is written from the settings classes by `./run docs`; a test compares the two.

A setting may be written in three places. The first that has it wins, and an option of a command, such as `--agent`, wins
over all of them:

| place | `LEASE_SECONDS` | `LLM__MODEL`, a setting of a block |
|---|---|---|
| the environment | `{PREFIX}LEASE_SECONDS=20` | `{PREFIX}LLM__MODEL=openai:gpt-5` |
| `.env` in the working directory | the same line | the same line; other programs' variables may stand beside it |
| `keyturn.toml` in the working directory | `lease_seconds = 20` | `model = "openai:gpt-5"` under `[llm]` |

Lists are written with commas (`a,b`) or as JSON (`["a", "b"]`). A name that is not on this page, a value that cannot work and
settings that contradict each other end every command with one sentence and exit code 78. Secrets are never shown: keep them
in the environment or in files that only their owner may read; `keyturn doctor` looks.
"""
_WORDS: dict[Any, str] = {
    bool: "`true` or `false`",
    int: "whole number",
    float: "number",
    SecretStr: "secret",
    Path: "path",
}


@value
class _Place:
    """Where the settings of a class are written: what their variables begin with, and their table in keyturn.toml."""

    variables: str
    table: str

    def inside(self, name: str, kind: Any) -> _Place:
        """The place of a block, of blocks by name, or of a list of blocks."""
        path = f"{self.table}.{name}" if self.table else name
        if get_origin(kind) is dict:
            word = "number" if get_args(kind)[0] is int else "name"
            return _Place(f"{self.variables}{name.upper()}__<{word.upper()}>__", f"{path}.<{word}>")
        return _Place(f"{self.variables}{name.upper()}__", path)


def page() -> str:
    """The whole page."""
    parts = [_INTRODUCTION]
    for section in SECTIONS:
        parts += [f"## {section.TITLE}\n", f"{_sentence(section)}\n", *_settings(section, _Place("", ""))]
    parts.append("## Platforms\n")
    for name, facts in PLATFORMS.items():
        if facts.settings is not None:
            parts += _block(facts.settings, _Place(f"{name.upper()}__", name), facts.title)
    return "\n".join(parts)


def _settings(kind: type[BaseModel], place: _Place) -> Iterator[str]:
    """A table of the settings of a class, then the blocks that it holds."""
    fields = kind.model_fields.items()
    rows = [_row(kind, name, place) for name, field in fields if not (_is_block(field.annotation) and not place.table)]
    if rows:
        yield "\n".join(("| setting | value | default | meaning |", "|---|---|---|---|", *rows, ""))
    for name, field in fields:
        inner = next((one for one in (field.annotation, *get_args(field.annotation)) if _is_block(one)), None)
        is_shown_elsewhere = place.table.endswith(">") and inner is field.annotation  # a named agent has blocks as LLM
        if inner is None or issubclass(kind, inner) or is_shown_elsewhere:
            continue  # a rule by name has the settings of the block that it stands in
        if get_origin(field.annotation) is tuple:
            yield from _block(inner, _Place("", f"[{name}]"), f"Rules of `{name.upper()}`")
        else:
            inside = place.inside(name, field.annotation)
            yield from _block(inner, inside, f"`{inside.variables}…`")


def _block(kind: type[BaseModel], place: _Place, title: str) -> Iterator[str]:
    yield f"### {title}\n"
    yield f"{_sentence(kind)} In `keyturn.toml`: `[{place.table}]`.\n"
    yield from _settings(kind, place)


def _row(kind: type[BaseModel], name: str, place: _Place) -> str:
    field = kind.model_fields[name]
    written = f"{place.variables}{name.upper()}" if place.variables or not place.table else name
    shown = f"{written}__…" if _is_block(field.annotation) else written
    cells = (f"`{shown}`", _value(field), _default(field), description(kind, name))
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def _value(field: FieldInfo) -> str:
    """What may be written, in words."""
    kind = field.annotation
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    words = " or ".join(_words(option) for option in options if option is not type(None))
    least, above, most = (
        next((found for bound in field.metadata if (found := getattr(bound, name, None)) is not None), None)
        for name in ("ge", "gt", "le")
    )
    if least is not None:
        return f"{words}, {least} to {most}" if most is not None else f"{words}, at least {least}"
    return f"{words} above {above}" if above is not None else words


def _words(kind: Any) -> str:
    origin = get_origin(kind)
    if origin is Literal:
        *others, last = (f"`{option}`" for option in get_args(kind))
        return f"{', '.join(others)} or {last}"
    if origin is tuple:
        inner = get_args(kind)[0]
        return "list of secrets" if inner is SecretStr else "list of rules, as JSON" if _is_block(inner) else "list"
    if origin is dict:
        return "blocks by number" if get_args(kind)[0] is int else "blocks by name"
    return "block" if _is_block(kind) else _WORDS.get(kind, "text")


def _default(field: FieldInfo) -> str:
    """What holds where nothing is written. Secrets have nothing to show."""
    if field.is_required():
        return "must be set"
    default = field.get_default(call_default_factory=True)
    if default is None or _holds_secrets(field.annotation):
        return "unset"
    if isinstance(default, BaseModel):
        return "as its own settings say"
    if default == () or default == {}:
        return "empty"
    shown = ",".join(default) if isinstance(default, tuple) else str(default)
    return f"`{shown.lower() if isinstance(default, bool) else shown}`"


def _holds_secrets(kind: Any) -> bool:
    return kind is SecretStr or any(_holds_secrets(inner) for inner in get_args(kind))


def _is_block(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _sentence(kind: type[BaseModel]) -> str:
    return " ".join((kind.__doc__ or "").split())


if __name__ == "__main__":
    PAGE.write_text(page())
