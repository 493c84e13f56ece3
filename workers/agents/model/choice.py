"""Which model the settings name, and by which client it is asked.

| LLM__MODEL | client |
|---|---|
| any name, with LLM__BASE_URL | our own, for the chat-completions format |
| `openai:…`, `openai-chat:…` | our own |
| any other provider | pydantic-ai, with the provider's own package: `keyturn[anthropic]` has one |
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from pydantic import SecretStr
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import infer_model
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers import Provider, infer_provider, infer_provider_class
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

from shared.errors import ConfigurationError
from shared.settings import LlmSettings
from shared.settings.agents import not_a_key
from workers.agents.model.contract import Model
from workers.agents.model.direct import DirectModel
from workers.agents.named import NO_MODEL
from workers.agents.openai_format.client import ChatCompletions, ModelServer
from workers.agents.openai_format.form import ServerForm

LOOPBACK = {"127.0.0.1", "::1", "localhost"}
OPENAI = ("openai", "openai-chat")
PACKAGED = ("anthropic",)  # providers whose package is an extra of ours


def open_model(config: LlmSettings, setting: str = "LLM__MODEL") -> Model:
    """The model that the settings name; nothing is sent yet. A ConfigurationError says what is wrong with `setting`."""
    if not config.model:
        raise ConfigurationError(NO_MODEL)
    try:
        if config.base_url is not None:
            key = config.api_key.get_secret_value() if config.api_key is not None else "none"
            server = OpenAICompatibleProvider("openai-compatible", base_url=config.base_url, api_key=key)
            return _chat(config, OpenAIChatModel(config.model, provider=server), setting)
        provider, _, name = config.model.partition(":")
        if provider in OPENAI:
            return _chat(config, OpenAIChatModel(name, provider=_provider(config, "openai")), setting)
        model = infer_model(config.model, lambda name: _provider(config, name))
        return DirectModel(model, config.timeout_seconds, config.max_output_tokens)
    except UserError as error:
        key = f"{setting.removesuffix('MODEL')}API_KEY"
        hint = f"set {key}, or the variable that the provider reads. It says: " if config.api_key is None else ""
        raise ConfigurationError(f"{setting}={config.model}: {hint}{error}") from None
    except (ImportError, ValueError, TypeError) as error:
        provider = config.model.partition(":")[0]
        lacks = isinstance(error, ImportError) and provider in PACKAGED
        hint = f"install keyturn[{provider}] (`./run install {provider}`). " if lacks else ""
        raise ConfigurationError(f"{setting}={config.model}: {hint}{error}") from None


def _provider(config: LlmSettings, name: str) -> Provider[Any]:
    """The provider with the key of the settings, or with the one that its own variable names."""
    if config.api_key is None:
        return infer_provider(name)
    kind: Any = infer_provider_class(name)
    opened: Provider[Any] = kind(api_key=config.api_key.get_secret_value())
    return opened


def _chat(config: LlmSettings, known: OpenAIChatModel, setting: str) -> ChatCompletions:
    """Our own client for a model of which pydantic-ai knows the address, the key and the peculiarities."""
    about: dict[str, Any] = {**known.profile}
    wants_thoughts = about.get("openai_chat_send_back_thinking_parts") == "field"
    limit = "max_completion_tokens" if about.get("openai_chat_supports_max_completion_tokens", True) else "max_tokens"
    form = ServerForm(known.system, (about.get("openai_chat_thinking_field") or "") if wants_thoughts else "", limit)
    url, key = str(known.client.base_url), SecretStr(known.client.api_key)
    if complaint := not_a_key(key.get_secret_value()):
        raise ConfigurationError(f"the key of {setting}={config.model}: {complaint}")
    server = ModelServer(url, key, form, config.timeout_seconds, config.max_output_tokens, _proxy(url))
    return ChatCompletions(known.model_name, server, about.get("context_window"))


def _proxy(url: str) -> str | None:
    """The environment's proxy for that address. A server on this machine is not reached through it."""
    address = urlsplit(url)
    if address.hostname is None or address.hostname in LOOPBACK or proxy_bypass(address.hostname):
        return None
    return getproxies().get(address.scheme)
