"""`top` without a terminal: what keys do to the view, and how a look is drawn."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from rich.console import Console

from keyturn.cli.status import span
from keyturn.cli.top.frame import Size, frame
from keyturn.cli.top.keyboard import keys_in
from keyturn.cli.top.look import TopLook
from keyturn.cli.top.view import BACKSPACE, DOWN, ENTER, ESCAPE, UP, Pane, TopView, Wish, arranged, pressed
from shared.reading.conversations import Conversation
from shared.reading.keys import KeyPhase, KeyState
from shared.reading.overview import BoundedCount
from shared.reading.status import DeploymentStatus
from shared.reading.verdict import Mood

NOW = datetime.now(UTC)
HOSTILE = "agent:main:api:dm:\x1b[2J\u202e" + "x" * 200 + "end"


def conversation(key: str, *, waited: float = 0, waiting: int = 1, attempts: int = 1) -> Conversation:
    state = KeyState("turns", key, KeyPhase.LEASED, waiting, attempts, worker="vm-1-abc")
    return Conversation(key, "api", state, waiting, attempts, NOW - timedelta(seconds=waited), None, None)


ROWS = [
    conversation("agent:main:api:dm:a", waited=9, waiting=1),
    conversation("agent:main:api:dm:b", waited=300, waiting=2, attempts=3),
    conversation("agent:main:api:dm:c", waited=60, waiting=7),
]
STATUS = DeploymentStatus(
    mood=Mood.WARN,
    verdict="12 conversations wait for a worker, the oldest 41 s: add workers.",
    at=NOW,
    ready=12,
    ready_seconds=41.0,
    running=3,
    delayed=1,
    behind=None,
    deliveries_ready=0,
    deliveries_running=0,
    messages_waiting=BoundedCount(17),
    replies_waiting=BoundedCount(10_001),
    dead_letters=BoundedCount(2),
    workers_alive=1,
    workers_silent=0,
    slots=200,
    overdue=0,
    redis_away=0,
    database_away=False,
    tokens_today=10,
    cost_today_usd=Decimal("0.5"),
)
LOOK = TopLook(STATUS, tuple(ROWS), complete=True)


def drawn(look: TopLook | None = LOOK, view: TopView | None = None, *, columns: int = 60, lines: int = 20) -> str:
    out = io.StringIO()
    console = Console(file=out, width=columns, height=lines, color_system=None)
    console.print(frame(look, view or TopView(), {"why": HOSTILE}, Size(columns, lines)))
    return out.getvalue()


def after(view: TopView, *keys: str) -> tuple[TopView, list[Wish]]:
    wishes = []
    for key in keys:
        view, wish = pressed(view, key, arranged(view, ROWS))
        wishes.append(wish)
    return view, wishes


@pytest.mark.parametrize(
    ("sort", "first"), [("waited", "b"), ("mail", "c"), ("attempts", "b"), ("key", "a"), ("platform", "a")]
)
def test_a_list_is_sorted_by_the_chosen_column(sort: str, first: str) -> None:
    assert arranged(TopView(sort=sort), ROWS)[0].key[-1] == first


def test_less_and_greater_choose_the_column_and_come_round() -> None:
    assert after(TopView(), ">", ">")[0].sort == "attempts"
    assert after(TopView(), "<")[0].sort == "key"


def test_the_chosen_conversation_stays_chosen_while_others_come_and_go() -> None:
    view, _ = after(TopView(), DOWN)
    assert view.selected == "agent:main:api:dm:c"
    more = [conversation("agent:main:api:dm:z", waited=1000), *ROWS]
    assert pressed(view, UP, arranged(view, more))[0].selected == "agent:main:api:dm:b"


def test_a_turn_is_stopped_only_after_a_yes() -> None:
    view, wishes = after(TopView(), "s")
    assert (view.pane, view.selected, wishes) == (Pane.STOP, "agent:main:api:dm:b", [Wish.NOTHING])
    assert "y / n" in drawn(view=view)
    assert after(view, "n")[1] == after(view, ENTER)[1] == [Wish.NOTHING]
    assert after(view, "y")[1] == [Wish.STOP]


def test_a_filter_is_checked_before_it_is_used() -> None:
    view, _ = after(TopView(), "/", *"nope:1", ENTER)
    assert view.pane is Pane.FILTER and "not understood" in view.note and view.filter == ""
    view, wishes = after(view, *[BACKSPACE] * 6, *"key:c", ENTER)
    assert (view.pane, view.filter, wishes[-1]) == (Pane.LIST, "key:c", Wish.LOOK)
    assert after(view, "/", "x", ESCAPE)[0].filter == "key:c"


def test_q_ends_the_list_and_leaves_other_panes() -> None:
    assert after(TopView(), "q")[1] == [Wish.QUIT]
    assert after(TopView(), ENTER, "q", "?", "q")[1] == [Wish.DETAIL, Wish.NOTHING, Wish.NOTHING, Wish.NOTHING]


def test_keys_are_told_apart_from_a_terminals_sequences() -> None:
    assert keys_in("\x1bs") == [ESCAPE, "s"]
    assert keys_in("j\x1b[A\x1bOB\x1b[5~\r\x7f\x1b[200~ä\x1b") == [
        "j",
        UP,
        DOWN,
        "page up",
        ENTER,
        BACKSPACE,
        "ä",
        ESCAPE,
    ]


@pytest.mark.parametrize("columns", [60, 80, 130])
@pytest.mark.parametrize("pane", list(Pane))
def test_no_line_is_wider_than_the_terminal_and_no_frame_higher(columns: int, pane: Pane) -> None:
    many = replace(LOOK, conversations=tuple(conversation(f"{HOSTILE}{n}") for n in range(100)))
    text = drawn(many, TopView(pane=pane, selected=f"{HOSTILE}50"), columns=columns, lines=20)
    assert max(len(line) for line in text.splitlines()) <= columns
    assert len(text.splitlines()) <= 20 or pane is Pane.DETAIL
    assert "\x1b" not in text and "\u202e" not in text
    if pane is Pane.LIST:
        assert "end50" in text


def test_a_frame_says_the_verdict_the_numbers_and_the_longest_wait_first() -> None:
    lines = drawn().splitlines()
    assert " ".join(lines[:2]).split() == STATUS.verdict.split()
    assert lines[2].split() == ["ready", "12", "(41s)", "running", "3/200", "delayed", "1"]
    assert lines[3].split() == ["behind", "?", "replies", ">10,000", "dead", "2", "workers", "1"]
    assert lines[5].split() == ["state", "waited", "mail", "tries", "key"]
    state, waited, *rest = lines[6].split()  # it has waited for longer by now
    assert (state, rest) == ("leased", ["2", "3", "agent:main:api:dm:b"]) and waited.endswith(("s", "m"))
    assert drawn(None).strip() == "Looking…"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (9.12, "9.1s"), (41, "41s"), (192, "3m12s"), (7500, "2h05m"), (273_600, "3d04h"), (1e9, "99d01h")],
)
def test_a_length_of_time_takes_six_characters(seconds: float, text: str) -> None:
    assert span(seconds) == text and len(text) <= 6
