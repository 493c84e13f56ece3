"""Which agent a conversation is with: the first rule that fits, else `main`. Pure."""

from __future__ import annotations

from shared.messages import Source
from shared.session_key import MAIN
from shared.settings import Settings


def agent_for(source: Source, settings: Settings) -> str:
    """The name for the session key. A rule fits where everything it names is so."""
    for rule in settings.routing:
        if (
            rule.platform in (None, source.platform)
            and rule.account in (None, source.account)
            and rule.chat in (None, source.chat)
            and (rule.user is None or rule.user in (source.user, source.user_alt))
        ):
            return rule.agent
    return MAIN
