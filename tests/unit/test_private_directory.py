"""What people said is readable by one user of the machine, whichever process makes the directories first."""

from __future__ import annotations

from pathlib import Path

import pytest

from keyturn.dashboard.access import LoginFiles, Role
from shared.log_file import LogFile
from shared.private_directory import make_private_directory
from shared.store.database.sqlite import SqliteDatabase


def logins(data_dir: Path) -> None:
    LoginFiles(data_dir).make_token("ann", Role.ADMIN)


def log(data_dir: Path) -> None:
    LogFile(data_dir / "logs", "work")


def database(data_dir: Path) -> None:
    SqliteDatabase(data_dir / "keyturn.db")


@pytest.mark.parametrize("first", [logins, log, database])
def test_whoever_needs_the_data_directory_first_makes_it_for_this_user_only(tmp_path: Path, first: object) -> None:
    assert callable(first)
    first(tmp_path / ".keyturn")
    assert (tmp_path / ".keyturn").stat().st_mode & 0o777 == 0o700


def test_a_directory_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o755)
    make_private_directory(tmp_path / "there" / "a" / "b")
    modes = [(tmp_path / "there" / name).stat().st_mode & 0o777 for name in ("", "a", "a/b")]
    assert modes == [0o755, 0o700, 0o700]
