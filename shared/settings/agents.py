"""Which model answers, which agents there are, and whom a conversation is with."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from shared.setting_values import Names


class Llm(BaseModel):
    """The `llm` agent: which model answers, and what it is told. `AGENT=local` takes all but the first three from here."""

    model_config = ConfigDict(
        extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False, protected_namespaces=()
    )

    model: str | None = None
    """`provider:name` as pydantic-ai knows it (`openai:gpt-5`); with BASE_URL, the name that the server there goes by."""
    base_url: str | None = Field(default=None, repr=False)
    """Any OpenAI-compatible server, up to and with its `/v1`. Unset: the provider's own."""
    api_key: SecretStr | None = None
    """Unset: what the provider's own variable says, such as OPENAI_API_KEY."""
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

    @model_validator(mode="after")
    def _fits(self) -> Llm:
        if self.base_url is not None and not self.base_url.startswith(("https://", "http://")):
            raise ValueError("LLM__BASE_URL is an http(s) address")
        return self


class NamedAgent(BaseModel):
    """A further agent, with settings of its own. Nothing is taken over from the others."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    agent: str
    """As AGENT."""
    llm: Llm = Llm()
    """As LLM."""


class Rule(BaseModel):
    """Whom a conversation is with. What is left out is no condition."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, coerce_numbers_to_str=True)

    agent: str
    """`main`, or one of AGENTS."""
    platform: str | None = None
    account: str | None = None
    chat: str | None = None
    user: str | None = None
