"""What each process does beside the messages: how many workers there are, what they log, what RQ's tools still see."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from shared.settings.section import Section


class ProcessSettings(Section):
    """How many workers `up` starts, what processes log, and how long RQ's tools see finished work."""

    TITLE = "Processes and logs"

    workers: int = Field(default=1, ge=1)
    """Worker processes that `keyturn up` starts. A worker keeps one core busy at most."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Less important lines are left out. The text of messages is logged at `debug` only."""
    log_format: Literal["auto", "text", "json"] = "auto"
    """`json`: a JSON object per line. `text`: lines for a person. `auto`: text on a terminal, else JSON."""
    log_dir: Path | None = None
    """A directory in which each process also keeps its log lines as JSON, for `keyturn logs`: 16 MB at most for each kind of
    process. `keyturn up` uses `logs` under DATA_DIR; elsewhere, unset means that there are no files."""
    result_seconds: int = Field(default=30, ge=1)
    """How long finished jobs stay visible in `rq info` and RQ dashboards."""
    sweep_seconds: float = Field(default=2, gt=0)
    """How often a housekeeper looks for messages that the database has and Redis lost. They are late by this much at most."""
