"""What `--help` prints."""

from __future__ import annotations

import pytest

from keyturn.cli.app import command


def test_help_shows_no_value_behind_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--help"], ["doctor", "--help"], ["sessions", "forget", "--help"]):
        command()(args=words, prog_name="keyturn", standalone_mode=False)
        printed = capsys.readouterr().out
        assert "--help" in printed and "bool" not in printed, printed
