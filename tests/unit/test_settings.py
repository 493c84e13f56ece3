"""Settings: what cannot work is refused at start, in words that hold no secret."""

from __future__ import annotations

import ast
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel, ValidationError

from shared import settings
from shared.errors import ConfigurationError
from shared.platforms import ALWAYS_ON, PLATFORMS
from shared.platforms.api import ApiSettings
from shared.platforms.webhook import WebhookSettings
from shared.settings import SECTIONS, Settings
from shared.settings.descriptions import description
from shared.settings.work import WorkSettings

ROOT = Path(__file__).parents[2]
CANARY = "canary-7f3a9c"
SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
Load = Callable[..., Settings]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Load:
    """Settings of an empty directory and an environment with nothing but these variables of ours."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.upper().startswith(settings.PREFIX)]:
        monkeypatch.delenv(name)

    def from_environment(**variables: str) -> Settings:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return settings.load()

    return from_environment


def test_nothing_set_is_an_embedded_deployment_that_talks_to_nobody(load: Load) -> None:
    loaded = load()
    assert (loaded.durability, loaded.agent, loaded.database) == ("journal", "echo", "sqlite:///.keyturn/keyturn.db")
    assert (
        not loaded.allow_all_users and not loaded.block(WebhookSettings).secrets and not loaded.block(ApiSettings).keys
    )
    with pytest.raises(ConfigurationError, match="no Redis"):
        loaded.redis_urls()


@pytest.mark.parametrize(
    "name",
    [
        "KEYTURN_NOPE",
        "keyturn_nope",
        "KEYTURN_NOPE__SECRETS",
        "KEYTURN_",
        "KEYTURN_AGENT__NAME",
        "KEYTURN_WEBHOOK__SECRET",
        "KEYTURN_API__KEYS__0",
    ],
)
def test_an_unknown_setting_is_an_error_that_names_it_and_not_its_value(load: Load, name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(**{name: CANARY})
    named = str(caught.value).lower()
    assert CANARY not in named
    assert name.lower() in named or name.lower().startswith(named.partition(":")[0])


def test_an_unknown_setting_in_a_file_is_an_error(load: Load, tmp_path: Path) -> None:
    for file, text in [
        (".env", f"KEYTURN_NOPE={CANARY}"),
        ("keyturn.toml", f'nope = "{CANARY}"'),
        ("keyturn.toml", f'[webhook]\nsecret = "{CANARY}"'),
        ("keyturn.toml", f'nope = "{CANARY}'),
    ]:
        (tmp_path / file).write_text(text)
        with pytest.raises(ConfigurationError) as caught:
            load()
        assert CANARY not in str(caught.value)
        (tmp_path / file).unlink()


def test_the_environment_wins_over_the_files(load: Load, tmp_path: Path) -> None:
    (tmp_path / "keyturn.toml").write_text(f'partitions = 3\nagent = "a:b"\n[webhook]\nsecrets = ["{SECRET}"]')
    (tmp_path / ".env").write_text("KEYTURN_PARTITIONS=4\nKEYTURN_CONCURRENCY=5")
    loaded = load(KEYTURN_CONCURRENCY="6")
    assert (loaded.agent, loaded.partitions, loaded.concurrency, len(loaded.block(WebhookSettings).secrets)) == (
        "a:b",
        4,
        6,
        1,
    )


@pytest.mark.parametrize("written", ['["ann", "bob"]', "ann,bob", " ann , bob ,", '[ "ann","bob" ]'])
def test_a_list_is_json_or_separated_by_commas(load: Load, written: str) -> None:
    assert load(KEYTURN_ALLOWED_USERS=written).allowed_users == ("ann", "bob")


@pytest.mark.parametrize("written", [f"{SECRET},{SECRET}", f'["{SECRET}", "{SECRET}"]'])
def test_secrets_are_listed_the_same_way(load: Load, written: str) -> None:
    loaded = load(KEYTURN_WEBHOOK__SECRETS=written)
    assert [secret.get_secret_value() for secret in loaded.block(WebhookSettings).secrets] == [SECRET, SECRET]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KEYTURN_WEBHOOK__SECRETS", f'["{CANARY}'),
        ("KEYTURN_WEBHOOK__SECRETS", f'[["{CANARY}"]]'),
        ("KEYTURN_WEBHOOK__SECRETS", f'[{{"a": "{CANARY}"}}]'),
        ("KEYTURN_WEBHOOK", CANARY),
        ("KEYTURN_WEBHOOK", f'{{"secrets": {{"a": "{CANARY}"}}}}'),
        ("KEYTURN_PARTITIONS", CANARY),
        ("KEYTURN_PARTITIONS", "0"),
        ("KEYTURN_DURABILITY", CANARY),
        ("KEYTURN_LEASE_SECONDS", "nan"),
        ("KEYTURN_LEASE_SECONDS", "inf"),
        ("KEYTURN_LEASE_SECONDS", "-1"),
        ("KEYTURN_MAX_BODY_BYTES", "1"),
        ("KEYTURN_API__KEYS", '[""]'),
        ("KEYTURN_API__NAMED_KEYS__SHOP__SECRETS", '[""]'),
        ("KEYTURN_API__NAMED_KEYS__SHOP__SCOPES", CANARY),
        ("KEYTURN_API__NAMED_KEYS__SHOP", CANARY),
        ("KEYTURN_ALLOW_ALL_USERS", CANARY),
    ],
)
def test_a_value_that_cannot_work_is_an_error_that_does_not_repeat_it(load: Load, name: str, value: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(**{name: value})
    shown = str(caught.value)
    assert CANARY not in shown
    assert name.removeprefix("KEYTURN_").partition("__")[0].lower() in shown.lower()
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        (
            {"KEYTURN_LEASE_SECONDS": "6", "KEYTURN_HEARTBEAT_SECONDS": "3"},
            "HEARTBEAT_SECONDS must be at most a third of LEASE_SECONDS",
        ),
        ({"KEYTURN_HEARTBEAT_SECONDS": "3.4"}, "HEARTBEAT_SECONDS must be at most a third of LEASE_SECONDS"),
        ({"KEYTURN_BACKOFF_SECONDS": "61"}, "BACKOFF_SECONDS must not exceed"),
        ({"KEYTURN_WEBHOOK__ENABLED": "true"}, "WEBHOOK__ENABLED needs WEBHOOK__SECRETS"),
        ({"KEYTURN_WEBHOOK__CALLBACK_URL": "http://localhost"}, "WEBHOOK__CALLBACK_URL needs WEBHOOK__SECRETS"),
        ({"KEYTURN_API__ENABLED": "true"}, "API__ENABLED needs API__KEYS or API__NAMED_KEYS"),
        ({"KEYTURN_API__NAMED_KEYS__SHOP__SCOPES": "chat"}, "API__NAMED_KEYS__SHOP has no SECRETS"),
        (
            {"KEYTURN_API__NAMED_KEYS__A__SECRETS": "same", "KEYTURN_API__NAMED_KEYS__B__SECRETS": "same"},
            "a secret stands under two names",
        ),
        (
            {"KEYTURN_API__KEYS": "same", "KEYTURN_API__NAMED_KEYS__B__SECRETS": "same"},
            "a secret stands under two names",
        ),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(load: Load, variables: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        load(**variables)
    assert "Value error" not in str(caught.value)  # our words, and none of pydantic's


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        (None, "KEYTURN_AGNET", "unknown setting KEYTURN_AGNET in the environment; did you mean KEYTURN_AGENT?"),
        (
            None,
            "KEYTURN_WEBHOOK__SECRET",
            "unknown setting KEYTURN_WEBHOOK__SECRET in the environment; did you mean KEYTURN_WEBHOOK__SECRETS?",
        ),
        (
            None,
            'KEYTURN_ROUTING=[{"agent": "main", "usr": "1"}]',
            "unknown setting 0.usr of KEYTURN_ROUTING in the environment; did you mean 0.user of KEYTURN_ROUTING?",
        ),
        (None, "KEYTURN_XYZZY", "unknown setting KEYTURN_XYZZY in the environment"),
        (".env", f"KEYTURN_AGNET={CANARY}", "unknown setting KEYTURN_AGNET in .env; did you mean KEYTURN_AGENT?"),
        (
            ".env",
            f"KEYTURN_LLM__MODLE={CANARY}",
            "unknown setting KEYTURN_LLM__MODLE in .env; did you mean KEYTURN_LLM__MODEL?",
        ),
        ("keyturn.toml", f'agnet = "{CANARY}"', "unknown setting agnet in keyturn.toml; did you mean agent?"),
        (
            "keyturn.toml",
            f'[agents.helper]\nagent = "llm"\n[agents.helper.llm]\nmodle = "{CANARY}"',
            "unknown setting agents.helper.llm.modle in keyturn.toml; did you mean agents.helper.llm.model?",
        ),
    ],
)
def test_an_unknown_setting_comes_with_its_file_and_a_suggestion(
    load: Load, tmp_path: Path, file: str | None, text: str, complaint: str
) -> None:
    variables = {}
    if file is not None:
        (tmp_path / file).write_text(text)
    else:
        name, _, value = text.partition("=")
        variables[name] = value or CANARY
    with pytest.raises(ConfigurationError) as caught:
        load(**variables)
    assert str(caught.value) == complaint


def test_a_wrong_value_comes_with_the_file_it_stands_in(load: Load, tmp_path: Path) -> None:
    (tmp_path / "keyturn.toml").write_text("partitions = 0")
    with pytest.raises(ConfigurationError, match=r"^partitions in keyturn.toml: .*greater than or equal to 1"):
        load()
    with pytest.raises(ConfigurationError, match=r"^KEYTURN_PARTITIONS in the environment: "):
        load(KEYTURN_PARTITIONS="-1")


@pytest.mark.parametrize(
    "name", ["KEYTURN_BUSY_CHATS", "KEYTURN_LLM__MCP", "KEYTURN_LLM", "KEYTURN_ROUTING", "KEYTURN_AGENTS"]
)
def test_a_block_that_is_no_json_comes_with_its_name_and_not_with_its_value(
    load: Load, tmp_path: Path, name: str
) -> None:
    right = {"KEYTURN_LLM__MODEL": "openai:gpt-5", "KEYTURN_LLM__TOOLS": "mytools,others"}  # no JSON either
    (tmp_path / ".env").write_text(f"{name}={CANARY}\n")
    with pytest.raises(ConfigurationError, match=rf"^{name} in .env: it is no JSON"):
        load(**right)
    with pytest.raises(ConfigurationError, match=rf"^{name} in the environment: it is no JSON") as refused:
        load(**right, **{name: CANARY})
    assert CANARY not in str(refused.value)


def test_variables_of_other_programs_may_stand_in_the_same_file(load: Load, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"OPENAI_API_KEY={CANARY}\nKEYTURN_PARTITIONS=3")
    assert load().partitions == 3


@pytest.mark.parametrize(("lease", "heartbeat"), [("10", 3.0), ("6", 1.8), ("1", 0.3)])
def test_the_heartbeat_follows_from_the_lease_unless_set(load: Load, lease: str, heartbeat: float) -> None:
    assert load(KEYTURN_LEASE_SECONDS=lease).heartbeat.total_seconds() == pytest.approx(heartbeat)
    assert load(KEYTURN_HEARTBEAT_SECONDS="0.2").heartbeat.total_seconds() == 0.2


def test_a_lease_of_three_heartbeats_will_do(load: Load) -> None:
    loaded = load(KEYTURN_LEASE_SECONDS="3", KEYTURN_HEARTBEAT_SECONDS="1")
    assert loaded.lease.total_seconds() == 3


@pytest.mark.parametrize("platform", ["WEBHOOK", "API"])
@pytest.mark.parametrize("name", ["ALLOWED_USERS", "REQUIRE_MENTION", "FREE_CHATS"])
def test_a_setting_that_would_do_nothing_on_a_platform_is_refused_in_one_sentence(
    load: Load, tmp_path: Path, platform: str, name: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"{platform}__{name} would do nothing: ") as caught:
        load(**{f"KEYTURN_{platform}__{name}": CANARY})
    assert CANARY not in str(caught.value) and ";" in str(caught.value)
    os.environ.pop(f"KEYTURN_{platform}__{name}")
    (tmp_path / "keyturn.toml").write_text(f'[{platform.lower()}]\n{name.lower()} = "{CANARY}"')
    with pytest.raises(ConfigurationError, match=f"{platform}__{name} would do nothing: "):
        load()


def blocks_in(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A class of settings and those that it holds, also in lists and by name."""
    yield kind
    for field in kind.model_fields.values():
        for inner in (field.annotation, *get_args(field.annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from blocks_in(inner)


def test_every_setting_is_read_by_the_product() -> None:
    """What nobody reads would do nothing, and an operator would not notice."""
    sources = [path for top in ("producers", "workers", "shared", "keyturn") for path in (ROOT / top).rglob("*.py")]
    nodes = (node for path in sources for node in ast.walk(ast.parse(path.read_text())))
    read = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    assert {name for kind in blocks_in(Settings) for name in kind.model_fields} - read - {*PLATFORMS} == set()


def test_every_setting_stands_in_one_section_and_says_what_it_does() -> None:
    listed = [name for section in SECTIONS for name in section.model_fields]
    assert len(listed) == len(set(listed)) and {*listed, *PLATFORMS} - {*ALWAYS_ON} == {*Settings.model_fields}
    for kind in blocks_in(Settings):
        assert kind.__doc__, kind
        assert [name for name in kind.model_fields if not description(kind, name) and name not in PLATFORMS] == []


def test_a_section_checks_itself() -> None:
    with pytest.raises(ValidationError, match="a third of LEASE_SECONDS"):
        WorkSettings(heartbeat_seconds=9)
    assert WorkSettings(lease_seconds=30).heartbeat.total_seconds() == 9


def test_several_redis_servers_are_separated_by_commas(load: Load) -> None:
    urls = ("redis://a:1/0", "rediss://b:2/0")
    assert load(KEYTURN_REDIS_URL=" , ".join(urls)).redis_urls() == urls
    with pytest.raises(ConfigurationError, match="no Redis"):
        load(KEYTURN_REDIS_URL=" , ").redis_urls()


def test_named_api_keys_are_written_in_the_environment_or_in_the_file(load: Load, tmp_path: Path) -> None:
    (tmp_path / "keyturn.toml").write_text(
        """[api.named_keys.shop]
secrets = ["one", "two"]
scopes = ["chat"]
messages_per_minute = 5
"""
    )
    written = load(
        KEYTURN_API__NAMED_KEYS__OTHER__SECRETS="three,four", KEYTURN_API__NAMED_KEYS__OTHER__SCOPES="read,chat"
    )
    block = written.block(ApiSettings)
    assert [(name, secret.get_secret_value()) for name, secret in sorted(block.secrets, key=str)] == [
        ("other", "three"),
        ("other", "four"),
        ("shop", "one"),
        ("shop", "two"),
    ]
    assert (block.named_keys["shop"].scopes, block.named_keys["other"].scopes) == (("chat",), ("read", "chat"))
    assert block.on and {"one", "two", "three", "four"} <= set(written.secret_values())


def test_secrets_are_in_no_repr_and_no_log_line(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    loaded = load(
        KEYTURN_REDIS_URL=f"redis://:{CANARY}@127.0.0.1:1/0",
        KEYTURN_DATABASE_URL=f"postgresql://u:{CANARY}@127.0.0.1:1/x",
        KEYTURN_WEBHOOK__SECRETS=f"whsec_{CANARY}",
        KEYTURN_WEBHOOK__CALLBACK_URL=f"https://u:{CANARY}@example.org/",
        KEYTURN_API__KEYS=f"{CANARY},{CANARY}",
        KEYTURN_API__NAMED_KEYS__SHOP__SECRETS=f"{CANARY}-of-shop",
    )
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("test").info("%s %r", loaded, loaded.block(WebhookSettings))
    shown = [
        repr(loaded),
        str(loaded),
        repr(loaded.block(WebhookSettings)),
        repr(loaded.block(ApiSettings)),
        caplog.text,
    ]
    assert all(CANARY not in text for text in shown)
    assert CANARY in loaded.redis_urls()[0] and CANARY in loaded.database
