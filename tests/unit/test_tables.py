"""Tables for a person: what does not fit the terminal is folded, or becomes a block of lines."""

from __future__ import annotations

import pytest
from rich.console import Console

from keyturn.cli import show

LONG = "No housekeeper has run for 30 s: what a crash leaves behind stays there until one runs again"
ROWS = [("ok", "settings", "load"), ("warn", "housekeeper redis://127.0.0.1:6379/0", LONG)]


def shown(columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *folds: str) -> list[str]:
    """The lines of a table in a terminal of so many columns."""
    monkeypatch.setattr(show, "_console", lambda: Console(width=columns, force_terminal=True, color_system=None))
    show.table(("level", "check", "found"), ROWS, empty="", folds=folds)
    return [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip()]


def test_one_long_text_is_folded_and_all_other_rows_keep_their_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    titles, _, first, *second = shown(80, monkeypatch, capsys, "found")
    assert (titles.split(), first.split()) == (["level", "check", "found"], ["ok", "settings", "load"])
    assert second[0].startswith("warn    housekeeper redis://127.0.0.1:6379/0   No housekeeper") and len(second) > 2
    assert " ".join(" ".join(second).split()).endswith(LONG.partition("30 ")[2])


def test_a_name_is_never_folded_and_rows_without_room_become_blocks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for columns, folds in ((80, ()), (60, ("found",))):
        lines = shown(columns, monkeypatch, capsys, *folds)
        assert "check  housekeeper redis://127.0.0.1:6379/0" in lines and max(map(len, lines)) <= columns
