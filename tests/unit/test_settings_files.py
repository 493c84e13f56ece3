"""How settings are written to .env and keyturn.toml: whole or not at all, and nothing else in them changes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from dotenv import dotenv_values
from hypothesis import given
from hypothesis import strategies as st

from shared import settings
from shared.errors import ConfigurationError
from shared.platforms.slack import SlackSettings
from shared.settings.dotenv_file import DotenvFile
from shared.settings.files import Present, SettingsFiles, Where
from shared.whole_files import NewContent, create_file, replace_files

TOML = """\
# who answers
agent = "echo"  # for now

[slack]  # work
# nobody else
allowed_users = ["U1"]

[llm]
model = "m"
"""
DOTENV = """
# secrets

export KEYTURN_SLACK__BOT_TOKEN="old"   # of the bot
OTHER='two
KEYTURN_SLACK__BOT_TOKEN=not a variable
lines'
keyturn_slack__home_channel=C1"""


@pytest.fixture
def files(tmp_path: Path) -> SettingsFiles:
    (tmp_path / "keyturn.toml").write_text(TOML)
    (tmp_path / ".env").write_text(DOTENV)
    return SettingsFiles(tmp_path)


def test_a_setting_changes_where_it_is_read_and_every_other_line_stays(files: SettingsFiles, tmp_path: Path) -> None:
    (tmp_path / "keyturn.toml").chmod(0o640)
    assert files.change("slack", "bot_token", "xoxb-new", secret=True) is Where.DOTENV
    assert files.change("slack", "app_token", "xapp-new", secret=True) is Where.DOTENV
    assert files.change("slack", "home_channel", "C2", secret=False) is Where.DOTENV  # .env wins over keyturn.toml
    assert files.change("slack", "allowed_users", ("U1", "U2"), secret=False) is Where.TOML
    assert files.change("signal", "account", "+1555", secret=False) is Where.TOML
    files.write()
    dotenv = (tmp_path / ".env").read_text()
    assert dotenv == DOTENV.replace(
        'KEYTURN_SLACK__BOT_TOKEN="old"   # of the bot', "KEYTURN_SLACK__BOT_TOKEN=xoxb-new"
    ).replace("keyturn_slack__home_channel=C1", "KEYTURN_SLACK__HOME_CHANNEL=C2\nKEYTURN_SLACK__APP_TOKEN=xapp-new\n")
    toml = (tmp_path / "keyturn.toml").read_text()
    assert toml == TOML.replace('["U1"]', '["U1", "U2"]') + '\n[signal]\naccount = "+1555"\n'
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in (".env", "keyturn.toml")] == [0o600, 0o640]


def test_what_is_written_now_is_known_with_its_place(files: SettingsFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    assert files.present("slack", "bot_token") == Present("old", Where.DOTENV)
    assert files.present("slack", "allowed_users") == Present(("U1",), Where.TOML)
    assert files.present("", "agent") == Present("echo", Where.TOML)
    assert files.present("slack", "app_token") is None is files.present("signal", "account")
    monkeypatch.setenv("keyturn_slack__bot_token", "from outside")
    assert files.present("slack", "bot_token") == Present("from outside", Where.ENVIRONMENT)


@given(st.text(st.characters(exclude_categories=("C", "Z"), include_characters=" "), min_size=1))
def test_a_secret_is_read_from_dotenv_as_it_was_written(secret: str) -> None:
    file = DotenvFile("OTHER=1")
    try:
        file.set("KEYTURN_X", secret)
    except ConfigurationError:
        assert "${" in secret
        return
    assert DotenvFile(file.text).get("KEYTURN_X") == secret
    import io

    assert dotenv_values(stream=io.StringIO(file.text)) == {"OTHER": "1", "KEYTURN_X": secret}


@pytest.mark.parametrize("secret", ["two\nlines", "${HOME}", "\x1b[31m"])
def test_a_secret_that_dotenv_cannot_hold_is_refused_and_not_repeated(files: SettingsFiles, secret: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        files.change("slack", "bot_token", secret, secret=True)
    assert secret not in str(refused.value)


def test_when_one_file_cannot_be_written_none_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    first.write_text("old")
    replaced: list[Path] = []

    def replace(new: Path, target: Path, really: object = os.replace) -> None:
        if len(replaced) == 2:
            raise OSError(28, "No space left on device")
        replaced.append(target)
        assert callable(really)
        really(new, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(OSError, match="No space"):
        replace_files({path: NewContent("new") for path in (first, second, third)})
    assert replaced == [first, second]
    assert [path.name for path in tmp_path.iterdir()] == ["a"] and first.read_text() == "old"


def test_a_file_that_could_not_be_written_to_its_end_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hold secrets, under a name that nobody knows."""

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_files({tmp_path / ".env": NewContent("KEY=secret")})
    with pytest.raises(OSError, match="No space"):
        create_file(tmp_path / "keyturn.toml", "agent = 'echo'")
    assert list(tmp_path.iterdir()) == []


def test_of_two_that_change_the_files_at_once_the_later_one_is_told_and_takes_nothing_back(tmp_path: Path) -> None:
    first, second = SettingsFiles(tmp_path), SettingsFiles(tmp_path)
    first.change("slack", "bot_token", "xoxb-1", secret=True)
    second.change("discord", "token", "t", secret=True)
    first.write()
    with pytest.raises(ConfigurationError, match=r"\.env was changed meanwhile"):
        second.write()
    assert (tmp_path / ".env").read_text() == "KEYTURN_SLACK__BOT_TOKEN=xoxb-1\n"
    again = SettingsFiles(tmp_path)
    again.change("discord", "token", "t", secret=True)
    again.write()
    assert "xoxb-1" in (tmp_path / ".env").read_text()


@pytest.mark.parametrize("is_there", [True, False])
def test_what_root_writes_belongs_to_whom_it_belonged_before_or_to_the_owner_of_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    given = list[tuple[int, int]]()
    if is_there:
        (tmp_path / ".env").write_text("A=1\n")
    owner = ((tmp_path / ".env") if is_there else tmp_path).stat()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fchown", lambda _, user, group: given.append((user, group)))
    replace_files({tmp_path / ".env": NewContent("A=2\n", 0o600)})
    assert given == [(owner.st_uid, owner.st_gid)]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    replace_files({tmp_path / ".env": NewContent("A=3\n", 0o600)})
    assert len(given) == 1  # only root could give a file away


def test_a_link_stays_a_link_and_a_file_that_is_there_is_not_created_again(tmp_path: Path) -> None:
    real = tmp_path / "elsewhere"
    real.write_text("old")
    (tmp_path / ".env").symlink_to(real)
    replace_files({tmp_path / ".env": NewContent("new", 0o600)})
    assert (tmp_path / ".env").is_symlink() and real.read_text() == "new"
    with pytest.raises(FileExistsError):
        create_file(real, "other")
    create_file(tmp_path / "fresh", "text")
    assert real.read_text() == "new" and (tmp_path / "fresh").stat().st_mode & 0o777 == 0o600


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "keyturn.toml").write_text("agent = ")
    with pytest.raises(ConfigurationError, match=r"keyturn\.toml"):
        SettingsFiles(tmp_path)
    for text in ("slack = 3", "[[slack]]\nbot_token = 'x'"):
        (tmp_path / "keyturn.toml").write_text(text)
        with pytest.raises(ConfigurationError, match="slack is no table"):
            SettingsFiles(tmp_path).present("slack", "bot_token")


def test_files_that_begin_with_a_byte_order_mark_are_read_and_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keyturn.toml").write_text('agent = "local"\n', encoding="utf-8-sig")
    (tmp_path / ".env").write_text("KEYTURN_CONCURRENCY=7\n", encoding="utf-8-sig")
    monkeypatch.chdir(tmp_path)
    files = SettingsFiles(tmp_path)
    assert files.present("", "concurrency") == Present("7", Where.DOTENV)
    files.change("slack", "bot_token", "xoxb-1", secret=True)
    files.change("slack", "home_channel", "C1", secret=False)
    files.write()
    loaded = settings.load()
    assert (loaded.agent, loaded.concurrency) == ("local", 7)
    assert loaded.block(SlackSettings).home_channel == "C1"


def test_what_was_written_can_be_put_back_byte_for_byte_unless_somebody_changed_it(tmp_path: Path) -> None:
    toml, dotenv = tmp_path / "keyturn.toml", tmp_path / ".env"
    toml.write_bytes(before := b"\xef\xbb\xbf[slack]\r\nenabled = true\r\n")
    toml.chmod(0o640)

    def write() -> SettingsFiles:
        files = SettingsFiles(tmp_path)
        files.change("slack", "bot_token", "xoxb-1", secret=True)
        files.change("slack", "home_channel", "C1", secret=False)
        files.write()
        assert dotenv.exists() and toml.read_bytes() != before
        return files

    write().undo()
    assert [path.name for path in tmp_path.iterdir()] == ["keyturn.toml"]
    assert toml.read_bytes() == before and toml.stat().st_mode & 0o777 == 0o640
    files = write()
    toml.write_text("agent = 'echo'")
    with pytest.raises(ConfigurationError, match="was changed meanwhile: what was written to it stays"):
        files.undo()
    assert dotenv.exists() and toml.read_text() == "agent = 'echo'"
    SettingsFiles(tmp_path).undo()
