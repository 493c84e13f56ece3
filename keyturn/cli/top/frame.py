"""How a look is drawn: the verdict, two lines of numbers, the list, and what the keys do. Fits 60 columns and more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from keyturn.cli.show import plain
from keyturn.cli.status import short_span, span
from keyturn.cli.top.look import TopLook
from keyturn.cli.top.view import Pane, TopView, arranged, chosen
from shared.reading.conversations import Conversation
from shared.reading.status import DeploymentStatus
from shared.reading.verdict import Mood
from shared.value import value

_STYLES = {Mood.GOOD: "green", Mood.WARN: "yellow", Mood.BAD: "bold red"}
_HELP = (
    ("arrows, j k", "choose a conversation"),
    ("Enter", "show it: its mailbox, and why it waits"),
    ("s", "stop its turn, after a question"),
    ("/", "filter: platform: state: age>30s attempts>1 user: key:"),
    ("< >", "sort by the column before or after"),
    ("p", "pause this view, and go on"),
    ("q", "end"),
)
_FIXED = 5  # lines that are not the list: two of numbers, a gap, the heads, the keys
_WIDE, _WIDER = 80, 120  # columns from which platform and worker are shown


@value
class Size:
    """Columns and lines of the terminal."""

    columns: int
    lines: int


def frame(seen: TopLook | None, view: TopView, detail: Mapping[str, object], size: Size) -> Group:
    """The whole screen. `detail` is shown instead of the list while one conversation is looked at."""
    if seen is None:
        return Group(Text("Looking…"))
    said = Text(plain(seen.status.verdict), style=_STYLES[seen.status.mood])
    lines = max(1, size.lines - _FIXED - (1 + len(said.plain) // max(1, size.columns)))
    body: Table | Text
    if view.pane is Pane.HELP:
        body = _record(dict(_HELP))
    elif view.pane is Pane.DETAIL:
        body = _record({"key": view.selected, **detail})
    else:
        body = _list(seen, view, lines, size.columns)
    return Group(said, *_numbers(seen.status), Text(""), body, _foot(seen, view, size.columns))


def cells(one: Conversation) -> tuple[str, ...]:
    """A conversation as words: state, waited, mail, attempts, platform, worker, key."""
    waited = span(one.waited_ms / 1000) if one.oldest is not None else "-"
    worker = one.state.worker or "-"
    return one.state.state.value, waited, str(one.waiting), str(one.attempts), one.platform, worker, one.key


def _numbers(status: DeploymentStatus) -> tuple[Text, Text]:
    def in_redis(count: int | None) -> str:
        return "?" if count is None else f"{count:,}{'+' if status.redis_away else ''}"

    oldest = f" ({span(status.ready_seconds)})" if status.ready and status.ready_seconds is not None else ""
    behind, slots = ("?" if count is None else f"{count:,}" for count in (status.behind, status.slots))
    replies, dead = (
        "?" if count is None else count.text.replace("more than ", ">")
        for count in (status.replies_waiting, status.dead_letters)
    )
    running, delayed, workers = map(in_redis, (status.running, status.delayed, status.workers_alive))
    first = f"ready {in_redis(status.ready)}{oldest}  running {running}/{slots}  delayed {delayed}"
    second = f"behind {behind}  replies {replies}  dead {dead}  workers {workers}{_slow_end(status)}"
    return Text(first, no_wrap=True, overflow="crop"), Text(second, no_wrap=True, overflow="crop")


def _slow_end(status: DeploymentStatus) -> str:
    """How long all but one in twenty messages waited for a worker and for the agent; nothing where none was answered lately."""
    known = {one.stage: short_span(one.p95_ms) for one in status.stages or ()}
    named = [f"{stage} {known[stage]}" for stage in ("wait", "agent", "send") if stage in known]
    return f"  p95 {' '.join(named)}" if named else ""


def _list(seen: TopLook, view: TopView, lines: int, columns: int) -> Table | Text:
    rows = arranged(view, seen.conversations)
    if not rows:
        return Text(plain(seen.trouble) if seen.trouble else "Every conversation is idle.", style="dim")
    at = chosen(view, rows)
    first = max(0, min(at - lines // 2, len(rows) - lines))
    names = ["state", "waited", "mail", "attempts", *(["platform"] if columns >= _WIDE else [])]
    names += [*(["worker"] if columns >= _WIDER else []), "key"]
    grid = Table(box=None, pad_edge=False, expand=True)
    for name in names:
        style = "bold reverse" if name == view.sort else "bold"
        head = Text("tries" if name == "attempts" else name, style=style)
        numeric = name in ("waited", "mail", "attempts")
        grid.add_column(head, justify="right" if numeric else "left", no_wrap=True, ratio=1 if name == "key" else None)
    all_names = ("state", "waited", "mail", "attempts", "platform", "worker", "key")
    room = columns - 34 - (12 if columns >= _WIDE else 0) - (30 if columns >= _WIDER else 0)
    for place, one in enumerate(rows[first : first + lines], first):
        words = dict(zip(all_names, cells(one), strict=True))
        words["key"] = _middle(plain(one.key), room)
        words["worker"] = _middle(plain(words["worker"]), 28)
        grid.add_row(*(Text(plain(words[name])) for name in names), style="reverse" if place == at else "")
    return grid


def _middle(text: str, room: int) -> str:
    """A text without its middle, where it is too long: what it begins and ends with tells keys apart."""
    if len(text) <= room or room < 8:
        return text
    return f"{text[: room // 2 - 1]}…{text[-(room - room // 2) :]}"


def _record(fields: Mapping[str, object]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, shown in fields.items():
        grid.add_row(Text(name), Text(plain(shown)))
    return grid


def _foot(seen: TopLook, view: TopView, columns: int) -> Text:
    if view.pane is Pane.FILTER:
        return Text(plain(f"{view.note}  " if view.note else "") + f"filter: {plain(view.typed)}_", style="bold")
    if view.pane is Pane.STOP:
        return Text(
            plain(f"Stop {_middle(str(view.selected), columns - 40)} and drop its mail? y / n"), style="bold red"
        )
    if view.pane is not Pane.LIST:
        return Text("Esc back", style="dim")
    parts: Sequence[str] = (
        view.note,
        "VIEW PAUSED" if view.paused else "",
        f"filter {view.filter}" if view.filter else "",
        "" if seen.complete or seen.trouble else "the longest waits only",
        "q end  / filter  < > sort  p pause  s stop  ? help",
    )
    return Text(plain("  ".join(part for part in parts if part)), style="dim", overflow="ellipsis", no_wrap=True)
