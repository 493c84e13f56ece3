"""Who may talk to the bot, and who may give which command. Lists of people have entries `<platform>:42`, or bare ids.

A bare id is meant for chat platforms, whose ids nobody can choose. Where a program makes up the user ids, only an entry that
names the platform counts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Annotated

from pydantic import Field, model_validator

from shared.setting_values import EVERYBODY, Names
from shared.settings.section import Block, Section

_BARE = re.compile(r"[^\s:@,][^\s:,]*")  # no handle: names can be changed, ids cannot


class CustomCommand(Block):
    """A slash command of the deployment's own: TEXT is answered as it is, PROMPT goes to the agent."""

    text: str | None = None
    """A fixed answer."""
    prompt: str | None = None
    """What the agent is asked; `{args}` stands for what followed the command."""
    help: str = "a command of this bot"
    """What /help says about it."""

    @model_validator(mode="after")
    def _has_one_answer(self) -> CustomCommand:
        if (self.text is None) == (self.prompt is None):
            raise ValueError("a command of COMMANDS has either TEXT or PROMPT")
        return self


class PeopleSettings(Section):
    """Who may talk to the bot, and who may give which command. Nobody may talk until somebody is listed."""

    TITLE = "People and commands"

    allowed_users: Names = ()
    """Users that may talk to the bot: `<platform>:42`, or a bare id, which counts on all chat platforms; `*` is everybody there."""
    allow_all_users: bool = False
    """Everybody may talk to the bot where no list says otherwise."""
    pairing: bool = True
    """A stranger who writes to the bot directly is told a pairing code, which lets them in once it is approved with
    `keyturn pair approve`. Off: strangers get no answer; who was let in stays so until `keyturn pair revoke`."""
    admin_users: Names = ()
    """Users that may give every command: `<platform>:42`, or a bare id, which counts on all chat platforms. Where a program
    makes up the user ids, only the first form counts."""
    admins_may_approve: bool = False
    """Admins may answer a question that was put to somebody else in a conversation that several people share."""
    user_commands: Names = (EVERYBODY,)
    """The commands that others may give; `*` is all but those for admins. /help and /whoami are always among them."""
    commands: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")], CustomCommand] = Field(
        default_factory=dict
    )
    """Commands of your own: `COMMANDS__<name>` = `{"text": …}` or `{"prompt": …}`."""


def ids_on(platform: str, entries: Iterable[str], *, bare: bool) -> set[str]:
    """The ids that the entries of a global list name on one platform; `bare`: those without a platform count there."""
    named = {entry.removeprefix(f"{platform}:") for entry in entries if entry.startswith(f"{platform}:")}
    return {*named, *(entry for entry in entries if bare and ":" not in entry)}


def check_entries(name: str, entries: Iterable[str], platforms: Collection[str], *, everybody: bool) -> None:
    """ValueError for an entry that could never match anybody, or that would match everybody where people are meant.

    Entries are told by their place: what was written there by mistake may be a secret.
    """
    for place, entry in enumerate(entries, 1):
        platform, named, id = entry.rpartition(":") if entry.count(":") == 1 else ("", "", entry)
        if named and platform not in platforms:
            raise ValueError(
                f"{name}: entry {place} names a platform that is not there; there are {', '.join(platforms)}"
            )
        if id == EVERYBODY and not everybody:
            raise ValueError(f"{name}: entry {place} is everybody; list people")
        if id != EVERYBODY and not _BARE.fullmatch(id):
            raise ValueError(
                f"{name}: entry {place} is neither a user id nor platform:id, such as {_example(platforms)}:42"
            )


def _example(platforms: Collection[str]) -> str:
    return next(iter(platforms), "platform")
