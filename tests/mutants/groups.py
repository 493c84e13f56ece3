"""Which files are mutated, in which group. The groups are judged apart, because their tests are of different kinds."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
GROUPS: dict[str, tuple[str, ...]] = {
    "logic": (
        "shared/context/*.py",
        "shared/session_key.py",
        "shared/codec.py",
        "shared/mail.py",
        "shared/part_record.py",
        "shared/signing.py",
        "shared/owner.py",
        "shared/control.py",
        "shared/escape.py",
        "shared/lane_key.py",
        "producers/**/*.py",
        "shared/door.py",
        "shared/leader.py",
        "workers/delivery/split.py",
        "workers/delivery/telegram_html.py",
        "shared/platforms/*.py",
        "shared/reading/replies.py",
        "shared/backoff.py",
    ),
    "lane": ("shared/lane/*.py", "shared/lane/*.lua", "shared/redis_servers.py", "shared/*.lua"),
    "store": ("shared/store/*.py", "shared/store/database/**/*.py", "shared/store/*.sql"),
    "work": ("workers/**/*.py",),
}
CALLERS = ("keyturn/**/*.py",)  # not mutated: they call statements and functions of the groups


def python_files() -> list[Path]:
    """The Python of all groups."""
    return [path for group in GROUPS for path in files_of(group) if path.suffix == ".py"]


def calling_files() -> list[Path]:
    """Python of no group, in which names of the groups may stand."""
    return sorted(path.relative_to(ROOT) for pattern in CALLERS for path in ROOT.glob(pattern))


def files_of(group: str) -> list[Path]:
    """The files of a group, each in one group only: the first that names it."""
    taken: set[Path] = set()
    for name, patterns in GROUPS.items():
        found = {path.relative_to(ROOT) for pattern in patterns for path in ROOT.glob(pattern)} - taken
        if name == group:
            return sorted(found)
        taken |= found
    raise KeyError(group)
