"""The platforms. A platform is `producers/<name>/`, `workers/delivery/<name>.py`, `shared/platforms/<name>.py`,
`tests/payloads/<name>/`, `tests/contract/<name>.py` and one line in the list below. Nothing else names one: a test looks
for it.

Routes, listeners, senders, settings, metrics, prompts, redaction, `doctor`, `up` and help texts are derived from the facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from shared.platforms.facts import Facts

_NAMES = (
    "api",
    "discord",
    "feishu",
    "local",
    "signal",
    "slack",
    "telegram",
    "webhook",
    "whatsapp",
)


def _facts(name: str) -> Facts:
    facts: Facts = import_module(f"{__name__}.{name}").FACTS
    assert facts.name == name, f"shared/platforms/{name}.py is about {facts.name}"
    return facts


PLATFORMS: Mapping[str, Facts] = {name: _facts(name) for name in sorted(_NAMES)}
"""The platforms that Keyturn connects to, by name, sorted."""

HIDE_IDS = frozenset(name for name, facts in PLATFORMS.items() if facts.hides_ids)
"""The platforms whose ids REDACT_PII hides."""
LISTENING = tuple(name for name, facts in PLATFORMS.items() if facts.listens)
"""The platforms that `keyturn listen` can hold a connection to."""
CONNECTING = tuple(name for name, facts in PLATFORMS.items() if facts.connects)
"""The platforms that `keyturn connect` can set up."""
ALWAYS_ON = tuple(name for name, facts in PLATFORMS.items() if facts.settings is None)
"""The platforms that cannot be turned off."""
FOR_PROGRAMS = tuple(name for name, facts in PLATFORMS.items() if facts.trusts_sender)
"""The platforms where programs write for their users, and nobody wants to be told of our housekeeping."""


def facts_of(name: str) -> Facts:
    """What is known of a platform. One that nobody has heard of has its name for a title, and can do nothing."""
    return PLATFORMS.get(name) or Facts(name, name.title())
