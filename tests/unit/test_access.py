"""Who may talk: nobody, until the settings say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from producers.access import Verdict, judge
from shared.errors import ConfigurationError
from shared.messages import Inbound, Source
from shared.permission import AllowList
from shared.platforms.settings import ChatSettings
from shared.platforms.telegram import TelegramSettings
from shared.settings import Settings, load


def verdict(
    user: str | None = "11",
    *,
    here: tuple[str, ...] = (),
    everywhere: tuple[str, ...] = (),
    allow_all: bool = False,
    chat_type: str = "dm",
    mentioned: bool = True,
    user_alt: str | None = None,
    **platform: Any,
) -> Verdict:
    block = TelegramSettings(allowed_users=here, **platform)
    lists: Any = {"allowed_users": everywhere, "allow_all_users": allow_all, "telegram": block}
    source = Source("telegram", "c1", chat_type, user=user, user_alt=user_alt)
    inbound = Inbound("in_1", "1", source, "hello", mentioned=mentioned)
    settings = Settings(_env_file=None, **lists)  # type: ignore[call-arg]
    return judge(inbound, block, AllowList(settings, block, "telegram"))


def test_nobody_may_talk_until_somebody_is_listed() -> None:
    assert verdict() is Verdict.STRANGER


@pytest.mark.parametrize(
    "lists",
    [
        {"here": ("11",)},
        {"everywhere": ("11",)},
        {"here": ("12",), "everywhere": ("11",)},
        {"here": ("*",)},
        {"everywhere": ("*",)},
        {"everywhere": ("telegram:11",)},
        {"everywhere": ("telegram:*",)},
        {"here": ("12", "*")},
        {"allow_all": True},
    ],
)
def test_a_listed_user_may_talk_and_a_star_lists_everybody(lists: Any) -> None:
    assert verdict(**lists) is Verdict.ADMITTED


@pytest.mark.parametrize("user", ["11", "12", "-100"])
def test_P16_a_list_with_a_star_admits_everybody(user: str) -> None:
    assert verdict(user, here=("*",)) is verdict(user, everywhere=("*",)) is Verdict.ADMITTED
    assert verdict(user, everywhere=("telegram:*",)) is Verdict.ADMITTED


@pytest.mark.parametrize("lists", [{"here": ("12",)}, {"everywhere": ("12",)}, {"everywhere": ("api:11",)}])
def test_a_list_is_not_widened_by_allowing_all(lists: Any) -> None:
    assert verdict(allow_all=True, **lists) is Verdict.STRANGER


@pytest.mark.parametrize(
    "user", ["12|11", "11|12", " 11", "11 ", "011", "11\n", "1", "*", "11,12", "１１", "telegram:11", ""]
)
def test_N87_only_an_id_that_equals_a_listed_one_is_allowed(user: str) -> None:
    assert verdict(user, here=("11",), everywhere=("telegram:13",)) is Verdict.STRANGER


def test_who_has_no_id_is_denied_whatever_is_allowed() -> None:
    assert verdict(None, here=("*",), allow_all=True) is Verdict.STRANGER


def test_the_other_id_of_a_user_will_do() -> None:
    assert verdict("+49", user_alt="uuid-1", everywhere=("uuid-1",)) is Verdict.ADMITTED


def test_a_name_opens_no_door() -> None:
    settings = Settings(_env_file=None, allowed_users=("Ann", "annli"))  # type: ignore[call-arg]
    source = Source("telegram", "c1", user="11", user_name="Ann", chat_name="annli")
    listed = AllowList(settings, ChatSettings(), "telegram")
    assert judge(Inbound("in_1", "1", source, "hello"), ChatSettings(), listed) is Verdict.STRANGER


@pytest.mark.parametrize("chat_type", ["group", "channel", "thread"])
def test_in_groups_a_message_must_name_the_bot_unless_the_group_is_free(chat_type: str) -> None:
    silent: dict[str, Any] = {"chat_type": chat_type, "mentioned": False, "here": ("11",)}
    assert verdict(**silent) is Verdict.UNADDRESSED
    assert verdict(**{**silent, "mentioned": True}) is Verdict.ADMITTED
    assert verdict(**silent, require_mention=False) is Verdict.ADMITTED
    assert verdict(**silent, free_chats=("c1",)) is Verdict.ADMITTED
    assert verdict(**silent, free_chats=("c2",)) is Verdict.UNADDRESSED


def test_a_mention_lets_no_stranger_in() -> None:
    assert verdict("12", chat_type="group", here=("11",)) is Verdict.STRANGER
    assert verdict("12", chat_type="group", here=("11",), require_mention=False) is Verdict.STRANGER


def test_in_a_direct_chat_everything_is_said_to_us() -> None:
    assert verdict(mentioned=False, here=("11",)) is Verdict.ADMITTED


def test_an_entry_of_another_platform_lets_nobody_in_here() -> None:
    assert verdict("11", everywhere=("webhook:11", "api:*")) is Verdict.STRANGER


@pytest.mark.parametrize(
    ("lists", "said"),
    [
        ({"ALLOWED_USERS": "42,matrix:42"}, "ALLOWED_USERS: entry 2 names a platform that is not there"),
        ({"ALLOWED_USERS": "telegram:"}, "ALLOWED_USERS: entry 1 is neither a user id nor platform:id"),
        ({"ALLOWED_USERS": ":42"}, "ALLOWED_USERS: entry 1 names a platform that is not there"),
        ({"ALLOWED_USERS": "a:b:c"}, "ALLOWED_USERS: entry 1 is neither"),
        ({"ALLOWED_USERS": "@ann"}, "ALLOWED_USERS: entry 1 is neither"),
        ({"ADMIN_USERS": "*"}, "ADMIN_USERS: entry 1 is everybody"),
        ({"ADMIN_USERS": "42,telegram:*"}, "ADMIN_USERS: entry 2 is everybody"),
        ({"TELEGRAM__ALLOWED_USERS": "11,@ann"}, "TELEGRAM__ALLOWED_USERS: entry 2 is no Telegram id"),
        ({"TELEGRAM__ALLOWED_USERS": "telegram:11"}, "TELEGRAM__ALLOWED_USERS: entry 1 is no Telegram id"),
        ({"TELEGRAM__ADMIN_USERS": "*"}, "TELEGRAM__ADMIN_USERS: entry 1 is no Telegram id"),
    ],
)
def test_an_entry_that_could_never_match_is_refused_at_start_and_told_by_its_place(
    lists: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in lists.items():
        monkeypatch.setenv(f"KEYTURN_{name}", value)
    with pytest.raises(ConfigurationError) as refused:
        load()
    assert said in str(refused.value) and "ann" not in str(refused.value)
