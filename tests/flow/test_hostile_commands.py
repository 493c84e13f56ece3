"""Every command with arguments that nobody sane would give: it is always answered, at the first try, and breaks nothing."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from shared.agent.turn import Result, Turn
from shared.control import CONTROL_COMMANDS
from shared.messages import Entry
from shared.pipeline import open_pipeline
from shared.settings import CustomCommand, MemorySettings, Settings
from tests.store.books import ask
from tests.support.pipe import Rig
from workers.agents.capabilities import Answer
from workers.agents.results import answered
from workers.commands import REGISTRY

SEED = 20261117
PER_COMMAND = 24
SILENT = ("start",)  # commands that are answered with nothing
VERBS = ("", "all", "search", "all search", "here", "forget", "clear", "done", "default", "-")
CHARACTERS = (
    "0123456789",
    "٠١٢٣٤٥٦٧٨٩०१२३４５６",
    "abcxyzABCXYZ",
    "äöüßİıſ",
    "数据库糖尿病ひらがな한국어",
    "%_!*?\\'\"`;:,.<>[]{}()|&^~#@$=+/-",
    " \t\n\r\v\f\x1b\x07\x7f",
    "\u200b\u200d\u202e\u2066\ufeff\ufffd",
    "😀👨‍👩‍👧🏴",
)
WHOLE = (
    "--5",
    "99999999999999999999",
    "-9223372036854775809",
    "9" * 4301,
    "1e308",
    "0x10",
    "NaN",
    "None",
    "\x00",
    "a\x00b",
    "NEAR(a b, 5)",
    "a AND (b OR",
    "'; DROP TABLE sessions; --",
    "%" * 300,
    "a" * 60_000,
    "a " * 30_000,
    "ses_" + "f" * 30,
    "“" * 100,
)


class Model:
    """An agent that can also be asked aside, so that no command is refused for want of a model."""

    wants_context = True

    async def run(self, turn: Turn) -> Result:
        return answered("fine")

    async def ask(self, rows: Sequence[Entry], system_prompt: str) -> Answer:
        return Answer("a summary", "", {"model": "m", "requests": 1, "total": 1})


def hostile(chance: random.Random) -> str:
    """Arguments: perhaps a word that the command knows, and then anything."""
    verb = chance.choice(VERBS)
    if chance.random() < 0.4:
        return f"{verb} {chance.choice(WHOLE)}".strip(" ")
    alphabets = chance.sample(CHARACTERS, chance.randint(1, 3))
    length = chance.choice((1, 2, 5, 20, 100, 255, 300, 5000))
    return f"{verb} {''.join(chance.choice(chance.choice(alphabets)) for _ in range(length))}"


@pytest.fixture
async def rig(make_settings: Callable[..., Settings]) -> AsyncIterator[Rig]:
    commands = {"ask": CustomCommand(prompt="Say {args}"), "rules": CustomCommand(text="Be kind.")}
    settings = make_settings(
        commands=commands, admin_users=("webhook:u1",), memory=MemorySettings(after_seconds=0), mailbox_limit=5000
    )
    async with open_pipeline(settings) as pipe:
        yield Rig(pipe, Model())


async def test_every_command_answers_hostile_arguments_at_the_first_try(rig: Rig) -> None:
    chance = random.Random(SEED)
    for name in sorted({*(command.name for command in REGISTRY.values()), "fork", "ask", "rules", "nonsense"}):
        await rig.accept("something to talk about")
        for _ in range(PER_COMMAND):
            text = f"/{name} {hostile(chance)}" if name not in CONTROL_COMMANDS or chance.random() < 0.8 else f"/{name}"
            accepted = await rig.accept(text)
            while (row := await rig.pipe.store.journal.find(accepted.id)) is not None and row["state"] == "pending":
                await rig.run_turns()
            assert row is not None
            assert (row["state"], row["attempts"]) == ("answered", 1), text[:200]
            replies = await rig.pipe.store.outbox.of_turn(row["turn_id"])
            assert replies or name in SILENT, text[:200]
            assert not any("did not work" in reply["payload"] for reply in replies), text[:200]
    assert await rig.pipe.store.dead.all(state="open", limit=10) == []
    pending = await ask(
        rig.pipe.store, "SELECT COUNT(*) AS n FROM inbox WHERE state = 'pending' AND platform <> 'task'"
    )
    assert pending == [{"n": 0}]
