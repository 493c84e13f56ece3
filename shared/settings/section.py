"""A section: settings of one noun. `Settings` is all sections side by side, so operators write their names without it."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Settings that belong together, with the checks that need no others. Each is whole: code may take it alone."""

    model_config = ConfigDict(extra="forbid", defer_build=True, frozen=True, allow_inf_nan=False)

    TITLE: ClassVar[str]
    """How the settings reference calls the section."""


class Block(BaseModel):
    """A group of settings that operators write under its name: `LLM__MODEL`, or `model` in `[llm]`."""

    model_config = ConfigDict(extra="forbid", defer_build=True, allow_inf_nan=False, protected_namespaces=())
