"""Which model answers, which agents there are, and whom a conversation is with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, Self

from pydantic import ConfigDict, Field, SecretStr, field_validator, model_validator

from shared.session_key import MAIN
from shared.setting_values import Names
from shared.settings.provider_limits import ProviderLimits
from shared.settings.section import Block, Section

OWN_TOOLS = ("schedule", "send", "background", "goal", "search", "memory", "web")
_AGENT_NAME = re.compile(r"[a-z0-9_][a-z0-9_~-]{0,63}")  # as session keys have it
_PERSON = re.compile(r"[a-z0-9_]+(@[^\s:]+)?:\S+")
_SERVER_NAME = re.compile(r"[a-zA-Z0-9_-]{1,20}")  # the names of its tools begin with it


class McpServer(Block):
    """A server whose tools the model may call: a program, or a URL."""

    line: str | None = None
    """The program and its arguments, as COMMAND__LINE. It is started on first use, once in each worker."""
    url: str | None = Field(default=None, repr=False)
    """The address of a server that is there already (streamable HTTP)."""
    environment: dict[str, SecretStr] = Field(default_factory=dict)
    """Variables of the program, beside a few usual ones such as PATH and HOME. It gets no others."""
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    """Headers of each request to the URL."""
    tokens: dict[str, SecretStr] = Field(default_factory=dict)
    """Tokens of people, by `<platform>:<user id>`, as JSON: `{"<platform>:42": "…"}`; `<platform>@<key name>:<user id>` for who an API key with
    a name speaks for. `{token}` in HEADERS or ENVIRONMENT stands for that of who asks; each has a connection or a program of their own, and
    others do without the server. Unset: all share it."""
    most_people: int = Field(default=20, ge=1)
    """With TOKENS: how many people's connections or programs each worker has at once. Beyond it, whoever is idle for longest loses theirs
    until they call again."""
    idle_seconds: float = Field(default=600, gt=0)
    """With TOKENS: a person's connection or program ends when they have not used it for so long."""
    directory: Path | None = None
    """Where the program runs. Unset: where the worker does."""
    start_seconds: float = Field(default=10, gt=0)
    """A server that is not ready by then is ended; the turn goes on without it."""
    required: bool = False
    """Without this server no turn runs: messages wait for it. Otherwise turns go on without its tools."""
    tools: Names = ()
    """Of its tools only these. None: all."""
    effects: dict[str, Literal["read", "keyed", "write"]] = Field(default_factory=dict)
    """What its tools do outside, by name, as `effect` of `@tool`. Tools that are not listed count as `write`."""
    trusted: bool = False
    """Believe what the server says of its tools: those that it calls read-only count as `read`."""

    @model_validator(mode="after")
    def _is_one_or_the_other(self) -> Self:
        if (self.line is None) == (self.url is None):
            raise ValueError("LLM__MCP: a server has either a line or a url")
        if self.url is not None and not self.url.startswith(("https://", "http://")):
            raise ValueError("LLM__MCP: a url is an http(s) address")
        return self

    @model_validator(mode="after")
    def _tokens_are_used(self) -> Self:
        sent = self.headers if self.url is not None else self.environment
        if any("{token}" in text.get_secret_value() for text in sent.values()) != bool(self.tokens):
            raise ValueError(
                "LLM__MCP: {token} in HEADERS (of a url) or ENVIRONMENT (of a line) and TOKENS need each other"
            )
        if any(not _PERSON.fullmatch(person) for person in self.tokens):
            raise ValueError("LLM__MCP: TOKENS names people as <platform>:<user id>")
        if any(not_a_key(token.get_secret_value()) or not token.get_secret_value() for token in self.tokens.values()):
            raise ValueError("LLM__MCP: one of TOKENS is none that can be sent; copy it again, all of it")
        if self.tokens and self.required:
            raise ValueError("LLM__MCP: a server with TOKENS cannot be required: people without one do without it")
        return self


def not_a_key(key: str) -> str:
    """What keeps a text from being sent as a key in a header, without telling the key; empty where nothing does."""
    wrong = next((place for place, sign in enumerate(key, 1) if not "!" <= sign <= "~"), None)
    return f"character {wrong} is none that a key can have; copy the key again, all of it" if wrong is not None else ""


def _http_address(url: str | None, setting: str) -> str | None:
    if url is not None and not url.startswith(("https://", "http://")):
        raise ValueError(f"{setting} is an http(s) address")
    return url


def _sendable(key: SecretStr | None, setting: str) -> SecretStr | None:
    if key is not None and (complaint := not_a_key(key.get_secret_value())):
        raise ValueError(f"{setting}: {complaint}")
    return key


class FallbackModel(Block):
    """A model that answers where those before it cannot. Nothing is taken over from LLM__MODEL: neither its key nor its address."""

    model: str
    """As LLM__MODEL: `provider:name`, or with BASE_URL the name that the server there goes by."""
    base_url: str | None = Field(default=None, repr=False)
    """As LLM__BASE_URL. Unset: the provider's own."""
    api_key: SecretStr | None = None
    """As LLM__API_KEY. Unset: what the provider's own variable says."""
    context_tokens: int | None = Field(default=None, ge=512)
    """As LLM__CONTEXT_TOKENS. Unset: as known for this model."""
    limits: ProviderLimits = ProviderLimits()
    """As LLM__LIMITS, for this model."""

    @field_validator("api_key")
    @classmethod
    def _is_a_key(cls, key: SecretStr | None) -> SecretStr | None:
        return _sendable(key, "LLM__FALLBACKS: API_KEY")

    @field_validator("base_url")
    @classmethod
    def _is_an_http_address(cls, url: str | None) -> str | None:
        return _http_address(url, "LLM__FALLBACKS: BASE_URL")


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
    system_prompt_file: Path | None = None
    """A text file with the system prompt, instead of SYSTEM_PROMPT: at most 100,000 bytes, from the working directory, as `keyturn.toml`. It
    is read again when it has changed, without a restart. Each worker reads its own. Unset: SYSTEM_PROMPT."""
    persona_file: Path | None = None
    """A text file that says who the agent is and how it speaks, such as `SOUL.md`; it stands before the system prompt. Otherwise as
    SYSTEM_PROMPT_FILE. Unset: no persona."""
    timeout_seconds: float = Field(default=120, gt=0)
    """A model that says nothing for so long counts as not answering; the turn is tried again."""
    max_output_tokens: int | None = Field(default=None, ge=1)
    """A longer answer is cut off here. Unset: where the provider cuts."""
    context_tokens: int | None = Field(default=None, ge=512)
    """How much the model reads at once. Unset: as known for the model, or no limit of ours where it is not known."""
    timestamps: bool = False
    """Show the model when each message of a user was sent, on the clocks of TIMEZONE."""
    models: Names = ()
    """Further models that a conversation may be switched to with /model; same provider key and address. None: no switching."""
    fallbacks: dict[int, FallbackModel] = Field(default_factory=dict)
    """Models that answer while the one before them is away, has used up its quota, or refuses its key: by number, asked in that order.
    `LLM__FALLBACKS__1__MODEL=anthropic:claude-sonnet-5-5`. None: messages wait for the model."""
    aside_model: str | None = None
    """The model for questions aside: titles, summaries, memory. Unset, or when it fails: the one that answers."""
    images: int = Field(default=8, ge=0)
    """How many pictures a request shows, the newest first; earlier ones are named in the text. 0: the model reads text only.
    A model that refuses pictures is asked again without them."""
    image_bytes: int = Field(default=5_000_000, ge=1)
    """A larger picture is named and not shown. Providers refuse those."""
    document_characters: int = Field(default=20_000, ge=0)
    """How much text of documents a request holds, the newest first. 0: documents are only named."""

    limits: ProviderLimits = ProviderLimits()
    """How much may be asked of the provider, by all workers together. Unset: as much as it takes."""

    tools: Names = ()
    """Modules with functions that the model may call: those with `@tool` from `keyturn`. None: it can only talk."""
    approve: Names = ()
    """Tools that run only after the user said yes: names, or patterns such as `shop_*`. None: all run at once. The user is shown the
    whole arguments; a call with more than 10,000 characters of them is not run."""
    approval_seconds: float = Field(default=86_400, gt=0)
    """A question about a tool that nobody answers for so long counts as a no."""
    ask_user: bool = False
    """Give the model a tool to ask the user something in the middle of its work. The answer may come at any time."""
    own_tools: Names = ()
    """Tools of Keyturn's own that the model may call: `schedule` (make, list and remove schedules), `send` (to other chats, for
    admins), `background` (start and list background tasks), `goal` (go on towards the goal that /goal set), `search` (find what was said
    in the user's conversations), `memory` (list and add notes about them) and `web` (read a public page). They act with the rights of
    who speaks."""
    mcp: dict[str, McpServer] = Field(default_factory=dict)
    """MCP servers by name, whose tools the model may call: `LLM__MCP__SHOP__LINE=python3 shop_server.py`. Needs keyturn[mcp]."""
    tool_seconds: float = Field(default=60, gt=0)
    """A tool that takes longer is ended, and the model is told. A function that is not async runs on, unheard."""
    tool_result_characters: int = Field(default=20_000, ge=100)
    """The model sees the first so many characters of what a tool returns."""
    max_requests: int = Field(default=20, ge=1)
    """A turn that asks the model more often than this ends with a plain reason."""
    max_tool_calls: int = Field(default=50, ge=1)
    """A turn that wants more tool calls than this ends with a plain reason."""
    max_turn_tokens: int | None = Field(default=None, ge=1)
    """A turn that has used so many tokens asks the model no more, and ends with a plain reason. Unset: no limit."""
    max_turn_cost: float | None = Field(default=None, gt=0)
    """The same for its cost in US dollars, by public price lists. A request whose price nobody knows counts as nothing: limit tokens
    where a model has none. Unset: no limit."""
    max_turn_seconds: float | None = Field(default=None, gt=0)
    """The same for its time. Unset: only TURN_TIMEOUT_SECONDS, which is a failure."""

    @model_validator(mode="after")
    def _has_one_system_prompt(self) -> Self:
        if self.system_prompt_file is not None and "system_prompt" in self.model_fields_set:
            raise ValueError("LLM__SYSTEM_PROMPT and LLM__SYSTEM_PROMPT_FILE contradict each other: set one of them")
        return self

    @field_validator("mcp")
    @classmethod
    def _are_short_names(cls, servers: dict[str, McpServer]) -> dict[str, McpServer]:
        if bad := [name for name in servers if not _SERVER_NAME.fullmatch(name)]:
            raise ValueError(f"LLM__MCP: {bad[0]!r:.80} cannot be a name; it has letters, digits, - and _, at most 20")
        return servers

    @field_validator("api_key")
    @classmethod
    def _is_a_key(cls, key: SecretStr | None) -> SecretStr | None:
        return _sendable(key, "LLM__API_KEY")

    @field_validator("base_url")
    @classmethod
    def _is_an_http_address(cls, url: str | None) -> str | None:
        return _http_address(url, "LLM__BASE_URL")

    @field_validator("own_tools")
    @classmethod
    def _are_own_tools(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [name for name in names if name not in OWN_TOOLS]:
            raise ValueError(f"LLM__OWN_TOOLS: {unknown[0]!r:.40} is none of {', '.join(OWN_TOOLS)}")
        return names


class CommandSettings(Block):
    """The `command` agent: a program that runs once per turn."""

    line: str = ""
    """The program and its arguments: `python3 mybot.py --brief`. Quotes work as in a shell, but no shell runs it."""
    output: Literal["text", "events"] = "text"
    """`text`: what it writes is the answer. `events`: one event in each line, as JSON. Text of users is never read as events."""
    directory: Path | None = None
    """Where it runs. Unset: in an empty directory of its own, which is removed when it has ended."""
    pass_environment: Names = ()
    """Names of variables that it gets as the worker has them, beside a few usual ones such as PATH and HOME."""
    environment: dict[str, SecretStr] = Field(default_factory=dict)
    """Further variables for it, as JSON: `{"SHOP_TOKEN": "…"}`."""
    max_output_bytes: int = Field(default=16 * 2**20, ge=1)
    """A program that writes more than this is ended, and the turn fails."""
    max_memory_mb: int | None = Field(default=None, ge=16)
    """How much address space each of its processes may have. Unset: as much as the worker."""
    max_cpu_seconds: int | None = Field(default=None, ge=1)
    """How much CPU time each of its processes may use. Unset: as much as the turn's time allows."""
    max_file_mb: int | None = Field(default=None, ge=1)
    """How large a file it may write. Unset: as large as the worker may."""
    max_open_files: int = Field(default=1024, ge=16)
    """How many files each of its processes may have open."""
    sandbox: Literal["none", "bubblewrap"] = "none"
    """`bubblewrap`: it sees the disk read-only, writes to its directory only, and has no network. Without bwrap, nothing starts."""
    sandbox_network: bool = False
    """Let it use the network from inside its sandbox."""
    sandbox_hidden: Names = ()
    """Directories that look empty from inside its sandbox, such as `~/.ssh` and DATA_DIR."""


class HttpSettings(Block):
    """The `http` agent: each turn is posted to a URL."""

    url: str | None = Field(default=None, repr=False)
    """Where turns are posted to. With FORMAT=chat, an OpenAI-compatible server up to and with its `/v1`."""
    format: Literal["turn", "chat"] = "turn"
    """`turn`: the server gets turns and says events. `chat`: it speaks OpenAI's chat completions; no system prompt is sent."""
    model: str | None = None
    """The name that the agent goes by there, for FORMAT=chat."""
    token: SecretStr | None = None
    """Sent as `Authorization: Bearer …`."""
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    """Further headers of each request, for FORMAT=turn, as JSON: `{"X-Key": "…"}`."""
    timeout_seconds: float = Field(default=120, gt=0)
    """A server that says nothing for so long counts as not answering; the turn is tried again."""
    max_answer_bytes: int = Field(default=16 * 2**20, ge=1, le=32 * 2**20)
    """A server that says more than this is not listened to any longer, and the turn fails."""

    @field_validator("url")
    @classmethod
    def _is_an_http_address(cls, url: str | None) -> str | None:
        return _http_address(url, "HTTP__URL")


class NamedAgent(Block):
    """A further agent, with settings of its own. Nothing is taken over from the others."""

    agent: str
    """As AGENT."""
    llm: LlmSettings = LlmSettings()
    """As LLM."""
    command: CommandSettings = CommandSettings()
    """As COMMAND."""
    http: HttpSettings = HttpSettings()
    """As HTTP."""


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
    """`echo`, `llm`, `local`, `command`, `http`, or `module:object`: a function from text to text, an async generator of events, an object with `run(turn)`, or an agent of a known library."""
    llm: LlmSettings = LlmSettings()
    """Which model answers, and what it is told."""
    command: CommandSettings = CommandSettings()
    """Which program answers, for AGENT=command."""
    http: HttpSettings = HttpSettings()
    """Which server answers, for AGENT=http."""
    agents: dict[str, NamedAgent] = Field(default_factory=dict)
    """Further agents by name, each with its own AGENT, LLM, COMMAND and HTTP: `AGENTS__<NAME>__AGENT`, `AGENTS__<NAME>__LLM__MODEL`."""
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
        named = self.agents[name]
        return self.model_copy(update={block: getattr(named, block) for block in NamedAgent.model_fields})
