"""Who may give which command, and the commands of a deployment's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from shared.errors import ConfigurationError
from shared.messages import Source
from shared.permission import is_admin
from shared.pipeline import open_pipeline
from shared.platforms.webhook import WebhookSettings
from shared.settings import CustomCommand, Settings, load
from tests.flow.test_commands import Recorder
from tests.flow.test_resume import say
from tests.support.pipe import Rig
from workers.agents.functions import FunctionAgent, echo
from workers.commands import REGISTRY, Command, CommandAnswer, CommandCall, register
from workers.process.parts import open_parts


@pytest.fixture
def restart() -> Iterator[None]:
    """A command for admins only."""

    async def run(_: CommandCall) -> CommandAnswer:
        return CommandAnswer("restarted")

    register(Command("restart-all", "for admins", run, admin=True))
    yield
    del REGISTRY["restart-all"]


async def test_a_command_for_admins_is_refused_to_others_and_hidden_from_them(
    make_settings: Callable[..., Settings], restart: None
) -> None:
    async with open_pipeline(make_settings(admin_users=("webhook:root",))) as pipe:
        rig = Rig(pipe)
        assert await say(rig, "/restart-all") == "/restart-all is for admins here."
        assert "/restart-all" not in await say(rig, "/help")
        assert await say(rig, "/restart-all", chat="c2", user="root") == "restarted"
        assert "/restart-all" in await say(rig, "/help", chat="c2", user="root")


async def test_others_may_give_only_what_is_listed_and_always_help_and_whoami(
    make_settings: Callable[..., Settings], restart: None
) -> None:
    settings = make_settings(admin_users=("webhook:root",), user_commands=("new", "restart-all"))
    async with open_pipeline(settings) as pipe:
        rig = Rig(pipe)
        assert await say(rig, "/undo") == "/undo is not switched on for you here."
        assert "new conversation" in await say(rig, "/reset")
        assert await say(rig, "/restart-all") == "/restart-all is for admins here."
        assert "u1" in await say(rig, "/whoami")
        assert sorted(line.split()[0] for line in (await say(rig, "/help")).splitlines()) == [
            "/help",
            "/new",
            "/whoami",
        ]
        assert "Nothing is running" in await say(rig, "/stop", chat="c2", user="root")
        assert await say(rig, "/stop") == "/stop is not switched on for you here."


def test_an_admin_is_known_by_an_exact_id_on_their_platform(make_settings: Callable[..., Settings]) -> None:
    listed = ("42", "telegram:43", "webhook:44")
    settings = make_settings(admin_users=listed, webhook=WebhookSettings(admin_users=("here",)))

    def admin(user: str | None, platform: str = "webhook") -> bool:
        return is_admin(settings, Source(platform, "c", user=user, user_name="here"))

    assert [user for user in ("42", "43", "44", "here") if admin(user, "telegram")] == ["42", "43"]
    assert [user for user in ("42", "43", "44", "here") if admin(user, "webhook")] == ["44", "here"]
    assert not any(admin(user, "api") for user in ("42", "43", "44", "here", "webhook:44", "api:42"))
    assert not admin("Here") and not admin("x|here") and not admin("webhook:44") and not admin(None)
    assert not admin("42", "settings") and not admin("u", "model_config")
    assert admin(None, "local")  # whoever sits at the terminal


async def test_an_id_that_a_webhooks_sender_makes_up_gives_no_rights_of_a_chat_platform(
    make_settings: Callable[..., Settings], restart: None
) -> None:
    async with open_pipeline(make_settings(admin_users=("42", "telegram:42"))) as pipe:
        assert await say(Rig(pipe), "/restart-all", user="42") == "/restart-all is for admins here."
        assert await say(Rig(pipe), "/restart-all", chat="c2", user="telegram:42") == "/restart-all is for admins here."


async def test_custom_commands_answer_with_a_text_or_ask_the_agent(make_settings: Callable[..., Settings]) -> None:
    commands = {
        "hours": CustomCommand(text="We are open from 9 to 17."),
        "translate": CustomCommand(prompt="Translate: {args} {not args}", help="into English"),
    }
    async with open_pipeline(make_settings(commands=commands)) as pipe:
        agent = Recorder()
        rig = Rig(pipe, agent)
        await say(rig, "hello")
        assert await say(rig, "/hours") == "We are open from 9 to 17."
        assert await say(rig, "/translate {args} guten Tag") == "answer 2"
        assert agent.heard() == ["hello", "Translate: {args} guten Tag {not args}"]
        assert [e.text for e in agent.turns[1].history if not e.data.get("command")] == ["hello", "answer 1"]
        assert "/translate [words] — into English" in await say(rig, "/help")
        assert "/hours" in await say(rig, "/huors")


async def test_a_custom_command_cannot_take_the_name_of_another(make_settings: Callable[..., Settings]) -> None:
    async with open_pipeline(make_settings(commands={"new": CustomCommand(text="no")})) as pipe:
        with pytest.raises(ConfigurationError, match="COMMANDS__NEW"):
            async with open_parts(pipe, FunctionAgent(echo), "test"):
                pass


def test_custom_commands_come_from_the_environment_and_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYTURN_COMMANDS__HOURS", '{"text": "9 to 17"}')
    monkeypatch.setenv("KEYTURN_COMMANDS__ASK__PROMPT", "Look up {args}")
    monkeypatch.setenv("KEYTURN_ADMIN_USERS", "1,2")
    found = load()
    assert (found.commands["hours"].text, found.commands["ask"].prompt) == ("9 to 17", "Look up {args}")
    assert found.admin_users == ("1", "2")
    monkeypatch.setenv("KEYTURN_COMMANDS__HOURS", '{"text": "a", "prompt": "b"}')
    with pytest.raises(ConfigurationError, match="either TEXT or PROMPT"):
        load()
