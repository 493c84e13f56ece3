"""What the turns of a worker process are run with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.context.marks import sender_id
from shared.context.memory import owner
from shared.messages import Inbound
from shared.pipeline import Pipeline
from shared.session_key import MAIN, SessionKey, agent_of
from workers.agents.capabilities import Asks
from workers.agents.contract import Agent, StartsFirst
from workers.agents.missing import Missing
from workers.delivery.button_removal import ButtonRemoval
from workers.delivery.preview import Previews
from workers.delivery.publish import Publisher
from workers.delivery.typing_indicator import TypingIndicator
from workers.media.fetch import MediaFetcher
from workers.side.budget import Budgets
from workers.side.context import ContextBuilder
from workers.side.titles import Titling
from workers.turn.busy.mode import BusyModes
from workers.turn.lifetime import Lifetime


@dataclass(slots=True)
class TurnParts:
    """One agent of a deployment, and everything that its turns need. Made once per process, and shared by all its turns."""

    pipe: Pipeline
    agent: Agent
    isolated_agent: Agent | StartsFirst  # the same agent, but each turn runs in a process of its own
    worker: str  # the name that traces show
    side_model: Asks | None = None  # answers questions outside of turns; None: the agent has no model
    context: ContextBuilder | None = None  # tells the agent where it runs; None: the agent does not use that
    titles: Titling | None = None  # None: sessions get no titles by themselves
    budgets: Budgets | None = None  # None: nothing limits what may be spent
    other_agents: Mapping[str, TurnParts] = field(default_factory=dict)  # by the name that their keys carry
    publisher: Publisher = None  # type: ignore[assignment]  # by default one that leaves every reply to its queue
    previews: Previews | None = None  # None: answers are shown when they are finished
    typing: TypingIndicator = field(default_factory=lambda: TypingIndicator({}))  # by default it shows nothing
    button_removal: ButtonRemoval = None  # type: ignore[assignment]  # by default one that can change no message
    media: MediaFetcher | None = None  # None: files stay what they are, references
    lifetime: Lifetime = field(init=False)
    busy_modes: BusyModes = field(init=False)

    def __post_init__(self) -> None:
        self.publisher = self.publisher or Publisher(self.pipe.deliveries)
        self.button_removal = self.button_removal or ButtonRemoval(self.pipe, {})
        self.lifetime = Lifetime(self.pipe)
        self.busy_modes = BusyModes.of(self.pipe.settings)

    def notes_of(self, session_key: str, inbound: Inbound) -> str | None:
        """Whose notes the agent is told in a turn on this message: this user's, or everybody's here where a conversation is
        shared. Empty: nobody's. None: it has no model that could be told anything."""
        if self.side_model is None and self.context is None:
            return None
        if self.side_model is None or inbound.is_stateless or not self.pipe.settings.memory.enabled:
            return ""
        return owner(SessionKey.parse(session_key), sender_id(inbound))

    def for_key(self, session_key: str) -> TurnParts:
        """The parts of the key's agent. A key of an agent that the settings no longer name gets one that refuses every
        turn: no other agent may answer in its place."""
        name = agent_of(session_key)
        if name == MAIN:
            return self
        return self.other_agents.get(name) or TurnParts(self.pipe, Missing(name), Missing(name), self.worker)
