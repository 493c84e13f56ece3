"""Who may give which command: admins all of them, others what USER_COMMANDS lists. /help, /whoami and /start are everybody's."""

from __future__ import annotations

from shared.messages import Source
from shared.permission import is_admin
from shared.settings import Settings

ALL = "*"
FLOOR = frozenset({"help", "whoami", "start"})


def may_give(settings: Settings, source: Source, name: str, admin: bool) -> bool:
    """Whether somebody may give the command of that name; `admin` says that it is one for admins."""
    if name in FLOOR:
        return True
    if not admin and ALL in settings.user_commands:
        return True
    return (not admin and name in settings.user_commands) or is_admin(settings, source)
