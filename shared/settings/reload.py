"""Settings that a running process takes on without a restart: who may talk, with which secrets, and how much.

All others stay as they were when the process started.
"""

from __future__ import annotations

from shared.platforms import PLATFORMS
from shared.settings import Settings, load
from shared.value import value

_PEOPLE = ("allowed_users", "allow_all_users", "pairing", "admin_users", "user_commands", "quota")
RELOADED = (*_PEOPLE, *(name for name, facts in PLATFORMS.items() if facts.settings is not None))


@value
class Reloaded:
    """The settings to go on with, and the names of those that changed: taken on, or not without a restart."""

    settings: Settings
    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]


def reloaded(running: Settings, ignored: tuple[str, ...] = ()) -> Reloaded:
    """Read the environment, .env and keyturn.toml again. A ConfigurationError says what is wrong, and nothing is changed.

    `ignored` are settings that the process was given in another way than by those.
    """
    fresh = load()
    for block in fresh.blocks:
        block.check()
    different = [name for name in Settings.model_fields if getattr(fresh, name) != getattr(running, name)]
    changed = tuple(name for name in different if name in RELOADED)
    others = tuple(name for name in different if name not in RELOADED and name not in ignored)
    settings = running.model_copy(update={name: getattr(fresh, name) for name in changed})
    return Reloaded(settings, changed, others)
