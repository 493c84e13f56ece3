"""The heartbeat: a schedule of the agent's own. It is asked about the open tasks in a file, and only while there are any."""

from __future__ import annotations

import re
from pathlib import Path

from shared.codec import storable
from shared.schedules.rule import Every
from shared.schedules.schedule import Missed, Overlap, Schedule
from shared.session_key import MAIN
from shared.settings.schedules import HeartbeatSettings
from shared.targets import parse_targets

ID = "sch_heartbeat"
TEXT_LIMIT = 20_000  # characters of the file
ASKED = "This is your heartbeat. Do what is due of your open tasks. If there is nothing to tell anybody, answer exactly [SILENT]."
NOTHING_OPEN = "there are no open tasks"
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_NO_TASK = re.compile(r"\s*(?:#.*|[-*+]\s*\[[xX]\].*|[-*_=\s]*)")  # headings, what is ticked off, and lines


def heartbeat_of(config: HeartbeatSettings, now_ms: int) -> Schedule | None:
    """The schedule that the settings ask for; None where they ask for none."""
    if config.every_minutes is None:
        return None
    rule = Every(int(config.every_minutes * 60_000), 0)  # counted from a fixed time: the same in every housekeeper
    return Schedule(
        ID,
        "heartbeat",
        "",
        MAIN,
        rule,
        ASKED,
        parse_targets(config.to),
        missed=Missed.SKIP,
        overlap=Overlap.SKIP,
        due_at=rule.next_after(now_ms),
        created_at=now_ms,
    )


def heartbeat_text(file: Path) -> str:
    """What the agent is asked now; empty where no task is open, or the file is not there."""
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            written = opened.read(TEXT_LIMIT)
    except OSError:
        return ""
    if all(_NO_TASK.fullmatch(line) for line in _COMMENT.sub("", written).splitlines()):
        return ""
    return storable(f"{ASKED}\n\n{written.strip()}")
