"""Commands of the deployment's own (COMMANDS__<name>): a fixed answer, or words for the agent with what followed put in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from shared.errors import ConfigurationError
from shared.settings import CustomCommand, Settings
from shared.store.change import NO_CHANGE
from workers.commands import REGISTRY, Again, Command, CommandAnswer, CommandCall

WORDS_LIMIT = 100_000  # they are for the agent, as a message is


def custom(settings: Settings) -> dict[str, Command]:
    """The commands that the settings add; a ConfigurationError where one has the name of another."""
    if taken := sorted(REGISTRY.keys() & settings.commands.keys()):
        raise ConfigurationError(f"COMMANDS__{taken[0].upper()}: there is a command of that name already")
    return {
        name: Command(name, about.help, _run(about), args="[words]", limit=WORDS_LIMIT)
        for name, about in settings.commands.items()
    }


def _run(about: CustomCommand) -> Callable[[CommandCall], Awaitable[CommandAnswer | Again]]:
    async def run(call: CommandCall) -> CommandAnswer | Again:
        if about.text is not None:
            return CommandAnswer(about.text)
        assert about.prompt is not None
        return Again(about.prompt.replace("{args}", call.args), call.session.history, NO_CHANGE)

    return run
