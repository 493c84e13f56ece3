"""Commands that only tell: /help, /whoami. /start tells nothing."""

from __future__ import annotations

from workers.commands import Command, CommandAnswer, CommandCall, known_to, register


async def show_help(call: CommandCall) -> CommandAnswer:
    shown = {command for command in known_to(call).values() if command.help}
    commands = sorted(shown, key=lambda command: command.name)
    return CommandAnswer("\n".join(f"/{c.name}{' ' + c.args if c.args else ''} — {c.help}" for c in commands))


async def whoami(call: CommandCall) -> CommandAnswer:
    source = call.inbound.source
    name = f" ({source.user_name})" if source.user_name else ""
    return CommandAnswer(
        f"You are {source.user or source.user_alt or 'unknown'}{name} on {source.platform}, in {source.chat_type} {source.chat}."
    )


async def start(call: CommandCall) -> CommandAnswer:
    """Some platforms' clients send it when somebody opens a chat with a bot: there is nothing to say to it."""
    return CommandAnswer("")


register(Command("help", "what I understand", show_help, aliases=("commands",)))
register(Command("whoami", "who I take you for", whoami))
register(Command("start", "", start, args="[anything]"))
