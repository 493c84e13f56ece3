"""The failpoints of the product, found in its source, so that a new one is in every plan from the day it is written."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from shared.stages import STAGES

ROOT = Path(__file__).parents[2]
PACKAGES = ("producers", "shared", "workers")
# What a stage does to the stores and to the outside. A file that does any of it has a failpoint at each side of it.
OPERATIONS = frozenset(
    {
        "journal.accept",
        "turns.put",
        "deliveries.put",
        "lane.start",
        "lane.recover",
        "lane.requeue",
        "transcript.load",
        "store.commit",
        "runs.add",
        "runs.begin",
        "runs.end",
        "runs.take_up",
        "outbox.sending",
        "outbox.sent",
        "sender.send",
    }
)


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if path != ROOT / "shared/stages.py":  # it reaches what its callers name
                yield path.relative_to(ROOT), ast.parse(path.read_text())


def points(tree: ast.Module) -> list[str]:
    """The names that a module reaches, once for each place: by itself, and around the stages that it carries out."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [ast.literal_eval(call.args[0]) for call in calls if _name(call.func) == "reach"]
    stages = [ast.literal_eval(call.args[0]) for call in calls if _name(call.func) == "stage"]
    return named + [point for name in stages for point in STAGES[name].points or ()]


def operations(tree: ast.Module) -> set[str]:
    """Which of the operations a module carries out."""
    return {_name(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)} & OPERATIONS


def _name(node: ast.expr) -> str:
    """The last two words of `a.b.c`, or the one of a plain name."""
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value).rpartition('.')[2]}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


POINTS = tuple(sorted(point for _, tree in modules() for point in points(tree)))
# Points that a run need not reach, each with the test that reaches it: keys move only after the list of servers or
# PARTITIONS was changed, neither Telegram, a platform that needs the spool or shows drafts, nor a schedule or a question takes
# part in the runs, nobody watches an answer grow, nobody sends files or pauses anything, every message waits for its turn, no tool is Keyturn's own, nobody restores a backup, and the runs' platform has no budget.
REACHED_BY_A_TEST = {
    "accept.after_refusal": "tests/flow/test_telegram.py",
    "accept.before_refusal": "tests/flow/test_telegram.py",
    "ask.after_expiry": "tests/flow/test_question_ends.py",
    "ask.before_expiry": "tests/flow/test_question_ends.py",
    "ask.before_park": "tests/flow/test_asking.py",
    "backup.before_rename": "tests/flow/test_backup.py",
    "buttons.before_removal": "tests/flow/test_buttons.py",
    "deliver.before_failure_notice": "tests/flow/test_delivery.py",
    "deliver.before_hold": "tests/flow/test_send_budget.py",
    "deliver.before_refuse": "tests/flow/test_send_budget.py",
    "fetch.after": "tests/flow/test_media.py",
    "fetch.before": "tests/flow/test_media.py",
    "interrupt.before_stop": "tests/flow/test_busy.py",
    "isolated.after_tool": "tests/flow/test_own_tools.py",
    "isolated.before_tool": "tests/flow/test_own_tools.py",
    "limits.after_admission": "tests/lane/test_provider_limits.py",
    "move.after_put": "tests/flow/test_servers_changed.py",
    "move.before_put": "tests/flow/test_servers_changed.py",
    "move.before_recover": "tests/flow/test_servers_changed.py",
    "move.before_unpark": "tests/flow/test_drained_server.py",
    "notice.after_add": "tests/flow/test_busy.py",
    "notice.before_add": "tests/flow/test_busy.py",
    "pair.after_code": "tests/flow/test_pairing.py",
    "pair.before_code": "tests/flow/test_pairing.py",
    "pause.before_hold": "tests/flow/test_pauses.py",
    "pause.before_wake": "tests/flow/test_pauses.py",
    "pieces.after_keep": "tests/flow/test_pieces.py",
    "pieces.before_forget": "tests/flow/test_pieces.py",
    "pieces.before_keep": "tests/flow/test_pieces.py",
    "preview.after_change": "tests/flow/test_preview.py",
    "preview.before_change": "tests/flow/test_preview.py",
    "preview.after_open": "tests/flow/test_preview.py",
    "preview.before_open": "tests/flow/test_preview.py",
    "quota.after_rejection": "tests/flow/test_quotas.py",
    "quota.before_rejection": "tests/flow/test_quotas.py",
    "reject.after": "tests/flow/test_busy.py",
    "reject.before": "tests/flow/test_busy.py",
    "restore.after_commit": "tests/flow/test_backup.py",
    "restore.after_emptying": "tests/flow/test_backup.py",
    "restore.after_swap": "tests/flow/test_backup.py",
    "restore.before_commit": "tests/flow/test_backup.py",
    "restore.before_emptying": "tests/flow/test_backup.py",
    "restore.before_swap": "tests/flow/test_backup.py",
    "schedule.after_claim": "tests/flow/test_schedules.py",
    "schedule.before_claim": "tests/flow/test_schedules.py",
    "spool.after_adopt": "tests/flow/test_spool.py",
    "spool.after_forget": "tests/flow/test_spool.py",
    "spool.after_keep": "tests/flow/test_spool.py",
    "spool.before_adopt": "tests/flow/test_spool.py",
    "spool.before_forget": "tests/flow/test_spool.py",
    "spool.before_keep": "tests/flow/test_spool.py",
    "stream.after_write": "tests/flow/test_chat_completions.py",
    "stream.before_write": "tests/flow/test_chat_completions.py",
    "task.after_result": "tests/flow/test_background_tasks.py",
    "task.before_accept": "tests/flow/test_background_tasks.py",
    "task.before_stop": "tests/flow/test_background_tasks.py",
    "steer.after_take": "tests/flow/test_busy.py",
    "steer.before_take": "tests/flow/test_busy.py",
}
ARMED = tuple(point for point in POINTS if point not in REACHED_BY_A_TEST)  # in every run
