"""Which conversation a message belongs to: with which agent, and with whom it is shared. Pure."""

from __future__ import annotations

from shared.messages import Inbound, Source
from shared.session_key import MAIN, SessionKey
from shared.settings import Settings
from shared.value import value


def agent_for(source: Source, settings: Settings) -> str:
    """The agent's name for the session key: the first rule that fits, else `main`. A rule fits if all it names is so."""
    for rule in settings.routing:
        if (
            rule.platform in (None, source.platform)
            and rule.account in (None, source.account)
            and rule.chat in (None, source.chat)
            and (rule.user is None or rule.user in (source.user, source.user_alt))
        ):
            return rule.agent
    return MAIN


@value
class Sharing:
    """Who shares a conversation, as the settings have it."""

    group_per_user: bool = True
    thread_per_user: bool = False
    shared_chats: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> Sharing:
        return cls(settings.group_sessions_per_user, settings.thread_sessions_per_user, settings.shared_chats)

    def key_of(self, source: Source, agent: str) -> SessionKey:
        """The key of the conversation that `source` belongs to; Malformed where an id it needs is missing."""
        is_shared = chat_name(source) in self.shared_chats
        return SessionKey.for_source(
            source,
            agent=agent,
            group_per_user=self.group_per_user and not is_shared,
            thread_per_user=self.thread_per_user and not is_shared,
        )


def key_for(inbound: Inbound, settings: Settings) -> SessionKey:
    """The key of the conversation that a message belongs to: with the agent that its sender chose, where they may, else with
    that of the first rule that fits. Malformed where an id is missing."""
    chosen = inbound.terms.agent if inbound.terms is not None else ""
    return Sharing.of(settings).key_of(inbound.source, chosen or agent_for(inbound.source, settings))


def chat_name(source: Source) -> str:
    """A chat as SHARED_CHATS names it."""
    return f"{source.platform}:{source.chat}"
