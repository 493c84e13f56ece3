"""What the person before `top` has chosen, and what each key does to it. No terminal and no store is needed here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from shared.errors import CannotDo
from shared.reading.conversation_query import parse_query
from shared.reading.conversations import Conversation
from shared.value import value

SORTS = ("waited", "mail", "attempts", "state", "platform", "key")
UP, DOWN, PAGE_UP, PAGE_DOWN, ENTER, ESCAPE, BACKSPACE = "up", "down", "page up", "page down", "enter", "esc", "back"
PAGE = 10
FILTER_LIMIT = 200


class Pane(StrEnum):
    """What is shown, and so what the keys mean."""

    LIST = "list"
    FILTER = "filter"  # a filter is being typed
    STOP = "stop"  # a turn is to be stopped: are they sure?
    DETAIL = "detail"  # one conversation
    HELP = "help"


class Wish(StrEnum):
    """What has to be done beside changing the view."""

    NOTHING = "nothing"
    QUIT = "quit"
    LOOK = "look"  # the filter has changed
    STOP = "stop"
    DETAIL = "detail"


@value
class TopView:
    """The view of one moment. `selected` is a key, so the same conversation stays chosen while others come and go."""

    pane: Pane = Pane.LIST
    filter: str = ""
    typed: str = ""
    sort: str = "waited"
    selected: str | None = None
    paused: bool = False
    note: str = ""


def arranged(view: TopView, found: Sequence[Conversation]) -> list[Conversation]:
    """The conversations in the chosen order: the largest number first, words by the alphabet."""
    if view.sort == "waited":
        return sorted(found, key=lambda one: -one.waited_ms)
    if view.sort in ("mail", "attempts"):
        return sorted(found, key=lambda one: -(one.waiting if view.sort == "mail" else one.attempts))
    if view.sort == "state":
        return sorted(found, key=lambda one: one.state.state.value)
    return sorted(found, key=lambda one: (one.platform, one.key) if view.sort == "platform" else (one.key, ""))


def chosen(view: TopView, rows: Sequence[Conversation]) -> int:
    """The place of the chosen conversation in the list; the first, where it has gone."""
    return next((at for at, one in enumerate(rows) if one.key == view.selected), 0)


def pressed(view: TopView, key: str, rows: Sequence[Conversation]) -> tuple[TopView, Wish]:
    """What a key does. `rows` are the conversations as they are shown."""
    if view.pane is Pane.FILTER:
        return _typing(view, key)
    if view.pane is Pane.STOP:
        sure = key in ("y", "Y")
        return replace(view, pane=Pane.LIST, note="" if sure else "not stopped"), Wish.STOP if sure else Wish.NOTHING
    if view.pane in (Pane.DETAIL, Pane.HELP):
        leaves = key in ("q", ESCAPE, ENTER, "?")
        return (replace(view, pane=Pane.LIST) if leaves else view), Wish.NOTHING
    return _listing(replace(view, note=""), key, rows)


def _listing(view: TopView, key: str, rows: Sequence[Conversation]) -> tuple[TopView, Wish]:
    moves = {UP: -1, "k": -1, DOWN: 1, "j": 1, PAGE_UP: -PAGE, PAGE_DOWN: PAGE}
    if key in moves and rows:
        at = min(max(chosen(view, rows) + moves[key], 0), len(rows) - 1)
        return replace(view, selected=rows[at].key), Wish.NOTHING
    if key in ("<", ">"):
        at = SORTS.index(view.sort) + (1 if key == ">" else -1)
        return replace(view, sort=SORTS[at % len(SORTS)]), Wish.NOTHING
    if key in ("s", ENTER) and rows:
        pane, wish = (Pane.STOP, Wish.NOTHING) if key == "s" else (Pane.DETAIL, Wish.DETAIL)
        return replace(view, selected=rows[chosen(view, rows)].key, pane=pane), wish
    if key == "/":
        return replace(view, pane=Pane.FILTER, typed=view.filter), Wish.NOTHING
    if key == "p":
        return replace(view, paused=not view.paused), Wish.NOTHING
    if key == "?":
        return replace(view, pane=Pane.HELP), Wish.NOTHING
    return view, Wish.QUIT if key == "q" else Wish.NOTHING


def _typing(view: TopView, key: str) -> tuple[TopView, Wish]:
    if key == ESCAPE:
        return replace(view, pane=Pane.LIST, typed=""), Wish.NOTHING
    if key == BACKSPACE:
        return replace(view, typed=view.typed[:-1]), Wish.NOTHING
    if key != ENTER:
        printable = len(key) == 1 and key.isprintable()
        return (replace(view, typed=(view.typed + key)[:FILTER_LIMIT]) if printable else view), Wish.NOTHING
    try:
        parse_query(view.typed)
    except CannotDo as error:
        return replace(view, note=str(error)), Wish.NOTHING
    return replace(view, pane=Pane.LIST, filter=view.typed, note=""), Wish.LOOK
