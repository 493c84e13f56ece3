"""docs/settings.md is what the settings classes say: every name, with its value, its default and its meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import get_args

from pydantic import BaseModel

from keyturn.settings_page import PAGE, page
from shared.settings import Settings


def test_the_page_is_as_the_settings_are() -> None:
    assert PAGE.read_text() == page(), "the settings changed: run ./run docs"


def names(kind: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every setting that can be written as a variable."""
    for name, field in kind.model_fields.items():
        inner = [one for one in (field.annotation, *get_args(field.annotation)) if isinstance(one, type)]
        blocks = [one for one in inner if issubclass(one, BaseModel)]
        if blocks and blocks[0] is field.annotation:
            yield from names(blocks[0], f"{prefix}{name.upper()}__")
        else:
            yield f"{prefix}{name.upper()}"


def test_every_setting_is_on_the_page_once_with_a_meaning() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", page(), re.M)
    listed = [name for name, *_ in rows]
    assert sorted(listed) == sorted(names(Settings))
    assert all(value.strip() and default.strip() and len(meaning) > 10 for _, value, default, meaning in rows)


def test_no_secret_shows_a_default() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (?:list of )?secrets? \| ([^|]+) \|", page(), re.M)
    assert len(rows) > 5 and {default for _, default in rows} <= {"unset", "must be set"}
