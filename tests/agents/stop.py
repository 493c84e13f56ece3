"""`/stop` from another process than the one that runs the turn: what ends, how soon, and that the key goes on."""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.agents.deployment import Deployment, is_running, open_deployment, pids_in, seconds_until, until
from tests.agents.verdict import Verdict
from tests.support import program

KINDS = {  # how the message of such a turn begins
    "coroutine": "a coroutine that waits",
    "stubborn": "one that goes on when it is cancelled",
    "thread": "a thread that waits",
    "grow": "a program with a child, a nohup'd grandchild and an orphan",
}
TURN_SECONDS, PROCESS_SECONDS = 1.0, 2.0
AGENT, PROGRAM = "tests.agents.acting:agent", "grow"


@dataclass(frozen=True, slots=True)
class Stopped:
    """Seconds since `/stop` was sent."""

    kind: str
    answered: float  # the chat is told
    ended: float  # the journal says so
    gone: float | None  # no process of the turn is left; None: it had none
    state: tuple[str, str | None]
    goes_on: bool  # the next message was answered


async def show_stop(directory: Path, database_url: str) -> tuple[list[Stopped], Verdict]:
    """The receiver takes `/stop`; whichever of two workers is free answers it."""
    stopped = []
    line = shlex.join([sys.executable, "-I", "-S", program.__file__])
    for agent, kinds in ((AGENT, KINDS.keys() - {PROGRAM}), ("command", {PROGRAM})):
        place = directory / agent.partition(":")[0]
        async with open_deployment(place, database_url, agent=agent, command__line=line) as here:
            await here.cluster.add("work", 2)
            stopped += [await _stopped(here, kind, place / kind) for kind in KINDS if kind in kinds]
    verdict = Verdict()
    for one in stopped:
        verdict.expect(f"{one.kind}: ended as stopped", one.state, ("superseded", "stopped"))
        verdict.expect(f"{one.kind}: the next message is answered", one.goes_on, True)
        verdict.within(f"{one.kind}: the turn ends", one.ended, TURN_SECONDS)
        if one.gone is not None:
            verdict.within(f"{one.kind}: its processes are gone", one.gone, PROCESS_SECONDS)
    return stopped, verdict


async def _stopped(here: Deployment, kind: str, path: Path) -> Stopped:
    said = await here.say(kind, f"{kind} {path}")
    await until(path.exists, f"the turn {kind} hangs")
    pids = pids_in(path) if kind == PROGRAM else []
    assert all(map(is_running, pids))
    since = time.monotonic()
    await here.say(kind, "/stop")
    ended = await seconds_until(lambda: here.ends(said)[0][0] != "pending", f"{kind} has ended", since)
    gone = await seconds_until(lambda: not any(map(is_running, pids)), "no process is left", since) if pids else None
    await until(lambda: here.shown(kind), f"{kind} is told")
    answered = here.platform.shown()[kind][0].at - since
    after = await here.say(kind, "say after")
    state = await here.ended(after)
    await until(lambda: here.shown(kind)[-1].endswith("after"), f"{kind} is answered")
    return Stopped(kind, answered, ended, gone, here.ends(said)[0], state == [("answered", None)])


def table(stopped: list[Stopped]) -> list[str]:
    return [
        "| the turn | /stop answered | turn ended | processes gone | the key goes on |",
        "|---|---|---|---|---|",
        *(
            f"| {KINDS[one.kind]} | {one.answered:.3f} s | {one.ended:.3f} s "
            f"| {'none' if one.gone is None else f'{one.gone:.3f} s'} | {'yes' if one.goes_on else 'NO'} |"
            for one in stopped
        ),
    ]
