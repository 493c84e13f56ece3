"""Every reason why something is set aside has its series from the start, so that an alert sees the first burst of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

from producers.settling import UNDELIVERED
from shared.dead_reasons import MessageReason, ReplyReason
from shared.store.dead import FULL
from workers.delivery.deliver import CLOSED, UNREACHABLE
from workers.turn.fail import REASON_OF

ROOT = Path(__file__).parents[2]
# A call that names its reason as text: bury(part, "refused", …).
_BURIED = re.compile(r'bury\((?:[^"()]|\([^()]*\))*"([a-z ]+)"')


def named_in(folder: str) -> set[str]:
    return {reason for file in (ROOT / folder).rglob("*.py") for reason in _BURIED.findall(file.read_text())}


def test_a_process_that_has_just_begun_has_a_series_for_every_reason() -> None:
    script = "from shared import metrics; print(metrics.render().decode())"
    printed = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    series = set(re.findall(r'^keyturn_dead_letter_total\{reason="([^"]+)"\} 0\.0$', printed.stdout, re.M))
    messages = named_in("workers/turn") | set(REASON_OF.values()) | {FULL, "error"}
    replies = named_in("workers/delivery") | {CLOSED, UNDELIVERED, UNREACHABLE}
    assert messages == set(get_args(MessageReason)) and replies == set(get_args(ReplyReason))
    assert series == messages | {f"reply {reason}" for reason in replies}
