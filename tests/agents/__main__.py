"""`./run agents PROMISE`: a deployment of real processes that shows one promise about agents, with its figures.

| promise | shows |
|---|---|
| busy | messages thrown at a running turn in every busy mode: each ends in a recorded state |
| stop | `/stop` ends a coroutine, a thread, a program and what that started; the key goes on |
| questions | turns that wait for a person hold no worker, no lease and no memory of Redis, and survive a restart of everything |
| schedule | a schedule that is due every second while a housekeeper is killed: each slot runs and is delivered once |
| faults | kills, pauses and errors at every failpoint of agents: nothing is lost, doubled or done twice |
| mcp | turns share one MCP server, which comes back when it dies and ends with its worker |

Ends with 1 where a promise does not hold. `./run faults --tools 3 --messages 5000 --kills 200` shows those about steps.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from tests.agents import busy, faults, mcp, questions, schedule, stop
from tests.agents.verdict import Verdict
from tests.faults.databases import open_ground

Shown = tuple[list[str], Verdict]
Show = Callable[[Path, str, int], Awaitable[Shown]]


async def _busy(directory: Path, url: str, count: int) -> Shown:
    thrown, verdict = await busy.show_busy(directory, url, count)
    return busy.table(thrown), verdict


async def _stop(directory: Path, url: str, _: int) -> Shown:
    stopped, verdict = await stop.show_stop(directory, url)
    return stop.table(stopped), verdict


async def _questions(directory: Path, url: str, count: int) -> Shown:
    parked, verdict = await questions.show_questions(directory, url, count)
    return questions.lines(parked), verdict


async def _schedule(directory: Path, url: str, count: int) -> Shown:
    fired, verdict = await schedule.show_schedule(directory, url, count)
    return schedule.lines(fired), verdict


async def _mcp(directory: Path, url: str, count: int) -> Shown:
    served, verdict = await mcp.show_mcp(directory, url, count)
    return mcp.lines(served), verdict


async def _faults(directory: Path, url: str, count: int) -> Shown:
    struck, verdict = await faults.show_faults(directory, url, count)
    return faults.lines(struck), verdict


# With how many of them it is shown: messages, nothing, questions, slots, turns; turns of each kind at once.
SHOWS: dict[str, tuple[Show, int]] = {
    "busy": (_busy, 50),
    "stop": (_stop, 0),
    "questions": (_questions, 1000),
    "schedule": (_schedule, 60),
    "mcp": (_mcp, 100),
    "faults": (_faults, 6),
}


async def show(name: str, database: str, count: int | None) -> Shown:
    """Show one promise in a deployment of its own."""
    function, usual = SHOWS[name]
    with tempfile.TemporaryDirectory(prefix="keyturn-agents-") as directory:
        async with open_ground(database, Path(directory), proxied=False) as ground:
            return await function(Path(directory) / "deployment", ground.url, usual if count is None else count)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./run agents", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("promise", nargs="*", choices=[[], *SHOWS], help="all of them, if none is named")
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--count", type=int, help="of messages, questions, slots or turns")
    given = parser.parse_args()
    holds = True
    for name in given.promise or SHOWS:
        told, verdict = uvloop.run(show(name, given.database, given.count))
        complaints = [*verdict.broken, *verdict.slow]
        print(
            "\n".join([f"## {name}, {given.database}", "", *told, "", *(complaints or ["It holds."]), ""]), flush=True
        )
        holds = holds and verdict.holds
    return 0 if holds else 1


if __name__ == "__main__":
    raise SystemExit(main())
