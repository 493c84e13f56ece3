"""What may be done in the background: by /background, /btw, and by agents."""

from __future__ import annotations

from pydantic import Field

from shared.settings.section import Block, Section


class BackgroundSettings(Block):
    """Bounds of background work."""

    at_once: int = Field(default=4, ge=0)
    """How many tasks of one conversation may run at a time, with those that they started themselves. Further ones are refused."""
    depth: int = Field(default=2, ge=0)
    """A task may start tasks, and those may, this deep. 0: nobody can do anything in the background."""
    in_a_row: int = Field(default=12, ge=0)
    """How many tasks an agent may start one after another because of the results of earlier ones, while nobody writes. Steps
    towards a goal count too."""
    goal_steps: int = Field(default=12, ge=0)
    """How many steps in a row a conversation with a goal goes on by itself, where LLM__OWN_TOOLS has `goal`."""


class BackgroundWorkSettings(Section):
    """What may be done in the background."""

    TITLE = "Background work"

    background: BackgroundSettings = BackgroundSettings()
    """Bounds of background work."""
