"""The `llm` agent: a language model of any provider or any OpenAI-compatible server, with tools.

What a provider's errors become, and so what happens to the message:

| the provider says | becomes | the message |
|---|---|---|
| 429, or 503 or 529 with Retry-After | RateLimited with that time | waits, without spending an attempt |
| 5xx, no connection, a cut connection | Outage | waits, without spending an attempt |
| nothing for LLM__TIMEOUT_SECONDS, an empty answer, a stream that ends in the middle, no JSON | Transient | is tried again |
| too long for the context | half the window and short results of tools, once; then TooLong | is set aside, the chat is told why |
| quota or credit used up | QuotaUsedUp | is set aside, the chat is told why |
| bad key, no such model | AccessRefused | is set aside |
| request or content refused | ModelRefused | is set aside |

With LLM__FALLBACKS, another model is asked before any of this happens to the message: workers/agents/model/fallback.py.

An error inside a stream counts as the status or code that it names. What a 429 or 529 means for all other requests, and what
LLM__LIMITS allows: workers/agents/model/admission.py.

An assistant row's `usage` holds `model`, `requests`, `input`, `output`, `cache_read`, `cache_write` and `total` tokens of the
request, `prompt` (its input tokens), and `cost_usd` with `cost` = estimated, or only `cost` = unknown. `estimated`: nobody
counted the tokens, and this is a guess. `partial`: the answer was stopped, and this is a guess of what it had cost.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, timedelta, tzinfo
from math import inf
from typing import TYPE_CHECKING

from shared import log
from shared.agent.events import Event, Notice
from shared.agent.turn import Turn
from shared.errors import ConfigurationError, Permanent, PipelineError, Transient
from shared.messages import Entry
from shared.settings import LlmSettings
from shared.settings.agents import FallbackModel
from workers.agents.capabilities import Answer
from workers.agents.contract import NeedsNoTask
from workers.agents.model.admission import ProviderAdmission
from workers.agents.model.admitted import AdmittedModel
from workers.agents.model.attachments import Attachments, attached, has_files
from workers.agents.model.contract import Model, ModelRefused, Prompt, Response
from workers.agents.model.conversation import ModelConversation
from workers.agents.model.fallback import ModelLine, RestingModels
from workers.agents.prompt_files import SystemPrompt
from workers.agents.tools.approval import Approval, names_no_tool
from workers.agents.tools.ask_user import ask_user
from workers.agents.tools.limits import Spending, TurnLimits
from workers.agents.tools.loop import Loop
from workers.agents.tools.tool import Tool, asker_of
from workers.agents.tools.toolbox import Toolbox, load_tools

try:
    from workers.agents.model.choice import open_model
    from workers.agents.model.direct import DirectModel
except ImportError as error:
    raise ConfigurationError(f"AGENT=llm and AGENT=local need pydantic-ai: install keyturn[llm] ({error})") from None

if TYPE_CHECKING:
    from pydantic_ai.models import Model as PydanticModel

    from workers.agents.mcp.servers import SupervisedServers


class LlmAgent(NeedsNoTask):
    """Answers with the model that the settings name. Keeps nothing between turns but its connections."""

    wants_context = True

    def __init__(self, config: LlmSettings, model: PydanticModel | None = None, *, zone: tzinfo = UTC) -> None:
        self._config = config
        self._prompt = SystemPrompt(config)
        self._times_in = zone if config.timestamps else None
        self._model = _opened(config, _direct(model, config) if model is not None else None)
        self._models = {name: _opened(config.model_copy(update={"model": name})) for name in config.models}
        self._fallbacks = [_fallback(config, number) for number in sorted(config.fallbacks)]
        self._resting = RestingModels()
        aside = config.aside_model
        self._aside = _opened(config.model_copy(update={"model": aside})) if aside else None
        self.own_tools = config.own_tools
        self._user_tools = [*load_tools(config.tools), *([ask_user] if config.ask_user else [])]
        self._offered: Sequence[Tool] = self._user_tools  # and those of Keyturn's own
        self._tools = self._toolbox(self._offered)
        self._servers = _open_servers(config) if config.mcp else None
        self._limits = TurnLimits(
            config.max_requests,
            config.max_tool_calls,
            config.max_turn_tokens or inf,
            config.max_turn_seconds or inf,
            config.max_turn_cost or inf,
        )
        if not self.own_tools:  # else there will be more tools
            self._look_for_unknown_names()

    def take_tools(self, tools: Sequence[Tool]) -> None:
        """Offer Keyturn's own tools beside those of LLM__TOOLS, which keep their names."""
        names = {tool.name for tool in self._user_tools}
        self._offered = [*self._user_tools, *(tool for tool in tools if tool.name not in names)]
        self._tools = self._toolbox(self._offered)
        self._look_for_unknown_names()

    def _look_for_unknown_names(self) -> None:
        """Say which names of LLM__APPROVE are no tool's: one whose name is mistyped there would run unasked."""
        for pattern in self._config.approve:
            if names_no_tool(pattern, [tool.name for tool in self._offered], self._config.mcp):
                log.get().warning("LLM__APPROVE names no tool", name=pattern)

    def take_admission(self, admission: ProviderAdmission) -> None:
        """Ask before each request, of every model, from now on."""
        aside = [self._aside] if self._aside is not None else []
        for model in (self._model, *self._models.values(), *self._fallbacks, *aside):
            model.admission = admission

    def _toolbox(self, tools: Sequence[Tool]) -> Toolbox:
        config = self._config
        return Toolbox(
            tools,
            seconds=config.tool_seconds,
            result_characters=config.tool_result_characters,
            approve=config.approve,
        )

    def run(self, turn: Turn) -> AsyncIterator[Event]:
        """Answer the mail. Text is streamed where the model streams; rows come as they become final."""
        if self._servers is None and not has_files(turn):
            return self._loop(turn, self._tools, None).events()
        return self._run_with_more(turn)

    async def _run_with_more(self, turn: Turn) -> AsyncIterator[Event]:
        """The same with the tools of MCP servers, as far as they answer, and with the files of the conversation."""
        tools = self._tools
        if self._servers is not None:
            found, notices = await self._servers.tools(asker_of(turn))
            for notice in notices:
                yield Notice(notice)
            tools = self._toolbox([*self._offered, *found])
        files = await attached(turn, self._config) if has_files(turn) else None
        async with aclosing(self._loop(turn, tools, files).events()) as events:  # type: ignore[type-var]
            async for event in events:
                yield event

    def _loop(self, turn: Turn, tools: Toolbox, files: Attachments | None) -> Loop:
        models = self._line(turn.model, turn.session_key)
        talk = ModelConversation(
            turn,
            self._prompt.text,
            tools.specs,
            room=models.now.room,
            times_in=self._times_in,
            attachments=files,
        )
        approvals = Approval(turn, timedelta(seconds=self._config.approval_seconds))
        return Loop(turn, models, talk, tools, Spending(self._limits, turn.rows), approvals)

    async def ask(self, rows: Sequence[Entry], system_prompt: str) -> Answer:
        """One request aside: to the model that is kept for that and, should it fail, to those that answer."""
        prompt = Prompt(rows, system_prompt)
        if self._aside is None:
            return await _first_answer(self._line(), prompt)
        try:
            return await _answer(self._aside, prompt)
        except PipelineError:
            return replace(await _first_answer(self._line(), prompt), instead_of=self._aside.name)

    def context_tokens(self, model: str = "") -> int | None:
        """How much that model reads at once; None where nobody says."""
        return self._named(model).context_window

    def _named(self, name: str) -> AdmittedModel:
        """A model that is not listed any more is not asked: the conversation goes on with the usual one."""
        return self._models.get(name, self._model)

    def _line(self, name: str = "", session_key: str = "") -> ModelLine:
        return ModelLine([self._named(name), *self._fallbacks], self._resting, session_key)


def _open_servers(config: LlmSettings) -> SupervisedServers:
    try:
        from workers.agents.mcp.servers import SupervisedServers
    except ImportError as error:
        raise ConfigurationError(f"LLM__MCP needs the package mcp: install keyturn[mcp] ({error})") from None
    return SupervisedServers(config.mcp)


def _opened(config: LlmSettings, model: Model | None = None) -> AdmittedModel:
    return AdmittedModel(model if model is not None else open_model(config), config)


def _fallback(config: LlmSettings, number: int) -> AdmittedModel:
    """The model with this number among the fallbacks. Of the first model's key, address and limits it gets nothing."""
    own = {name: getattr(config.fallbacks[number], name) for name in FallbackModel.model_fields}
    alone = config.model_copy(update=own)
    return AdmittedModel(open_model(alone, f"LLM__FALLBACKS__{number}__MODEL"), alone)


def _direct(model: PydanticModel, config: LlmSettings) -> DirectModel:
    return DirectModel(model, config.timeout_seconds, config.max_output_tokens)


async def _first_answer(models: ModelLine, prompt: Prompt) -> Answer:
    """The answer of the first in line that can give one."""
    while True:
        try:
            return replace(await _answer(models.now, prompt), instead_of=models.instead_of)
        except (Transient, Permanent) as error:
            await models.after(error)


async def _answer(model: Model, prompt: Prompt) -> Answer:
    """One request, read to its end. Raises what the table above says."""
    async for piece in model.stream(prompt):
        if isinstance(piece, Response):
            if piece.text:
                return Answer(piece.text, piece.reasoning, piece.usage, marks=piece.marks)
            if piece.is_filtered:
                raise ModelRefused("the provider's content filter refused to answer")
    raise Transient("the model answered nothing")
