"""Which model answers, which agents there are, and whom a conversation is with."""

from __future__ import annotations

import re
from typing import Self

from pydantic import ConfigDict, Field, SecretStr, field_validator, model_validator

from shared.session_key import MAIN
from shared.setting_values import Names
from shared.settings.section import Block, Section

_AGENT_NAME = re.compile(r"[a-z0-9_][a-z0-9_~-]{0,63}")  # as session keys have it


class LlmSettings(Block):
    """The `llm` agent: which model answers, and what it is told. `AGENT=local` takes all but the first three from here."""

    model: str | None = None
    """`provider:name` as pydantic-ai knows it (`openai:gpt-5`); with BASE_URL, the name that the server there goes by."""
    base_url: str | None = Field(default=None, repr=False)
    """Any OpenAI-compatible server, up to and with its `/v1`. Unset: the provider's own."""
    api_key: SecretStr | None = None
    """The provider's key. Unset: what the provider's own variable says, such as OPENAI_API_KEY."""
    system_prompt: str = "You are a helpful assistant in a chat. Answer briefly, in the language of the user."
    """What the model is told before every conversation."""
    timeout_seconds: float = Field(default=120, gt=0)
    """A model that takes longer counts as not answering; the turn is tried again."""
    max_output_tokens: int | None = Field(default=None, ge=1)
    """A longer answer is cut off here. Unset: where the provider cuts."""
    context_tokens: int | None = Field(default=None, ge=512)
    """How much the model reads at once. Unset: as known for the model, or no limit of ours where it is not known."""
    timestamps: bool = False
    """Show the model when each message of a user was sent, on the clocks of TIMEZONE."""
    models: Names = ()
    """Further models that a conversation may be switched to with /model; same provider key and address. None: no switching."""
    aside_model: str | None = None
    """The model for questions aside: titles, summaries, memory. Unset, or when it fails: the one that answers."""

    @field_validator("base_url")
    @classmethod
    def _is_an_http_address(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("https://", "http://")):
            raise ValueError("LLM__BASE_URL is an http(s) address")
        return url


class NamedAgent(Block):
    """A further agent, with settings of its own. Nothing is taken over from the others."""

    agent: str
    """As AGENT."""
    llm: LlmSettings = LlmSettings()
    """As LLM."""


class RoutingRule(Block):
    """Whom a conversation is with. What is left out is no condition."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    agent: str
    """`main`, or one of AGENTS."""
    platform: str | None = None
    """Only on this platform."""
    account: str | None = None
    """Only with this bot of the platform."""
    chat: str | None = None
    """Only in the chat with this id."""
    user: str | None = None
    """Only for the user with this id."""


class AgentSettings(Section):
    """Who answers, and with which model."""

    TITLE = "Agents and models"

    agent: str = "echo"
    """`echo`, `llm`, `local`, or `module:object`: a function str -> str, sync or async, or an object with `run(turn)`."""
    llm: LlmSettings = LlmSettings()
    """Which model answers, and what it is told."""
    agents: dict[str, NamedAgent] = Field(default_factory=dict)
    """Further agents by name, each with its own AGENT and LLM: `AGENTS__<NAME>__AGENT`, `AGENTS__<NAME>__LLM__MODEL`."""
    routing: tuple[RoutingRule, ...] = ()
    """Who talks to which agent, a JSON list: `[{"platform": "…", "chat": "-100", "agent": "helper"}]`. First match wins."""

    @field_validator("agents")
    @classmethod
    def _are_names(cls, agents: dict[str, NamedAgent]) -> dict[str, NamedAgent]:
        if bad := [name for name in agents if not _AGENT_NAME.fullmatch(name) or name == MAIN]:
            raise ValueError(f"AGENTS: {bad[0]!r:.80} cannot be a name; it is a lower-case word other than {MAIN}")
        return agents

    @model_validator(mode="after")
    def _rules_name_agents(self) -> Self:
        if lost := [rule.agent for rule in self.routing if rule.agent not in (MAIN, *self.agents)]:
            raise ValueError(f"ROUTING names {lost[0]!r:.80}, which is not one of AGENTS")
        return self

    def for_agent(self, name: str) -> Self:
        """The settings as that agent has them."""
        if name not in self.agents:
            return self
        return self.model_copy(update={"agent": self.agents[name].agent, "llm": self.agents[name].llm})
