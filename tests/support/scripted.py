"""An agent that does what the message tells it, and writes down when every turn began and ended.

KEYTURN_AGENT=tests.support.scripted:agent. A message is a line of words, such as `n=17 sleep=12 parts=2`:

sleep=MS  take so long           linger=MS the same, on the first attempt only
raise     fail                   refuse    fail for good            hang   never end
crash     take the process down  parts=K   answer in K pieces       silent say nothing
tools=K   call K tools, one after another: in turn one that reads, a keyed one and one that writes. Their effects are in the log.

`raise`, `crash` and `hang` may carry a number: `crash=2` happens on the first two attempts only.
Each event is one JSON line in the directory that TURN_LOG names, written before anything else can go wrong.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from shared.agent.events import Call
from shared.agent.steps import Effect, How
from shared.agent.turn import Result, Turn
from shared.errors import Outage, Permanent
from shared.messages import Entry, Reply

AWAY = "provider-away"  # a file in that directory
TOOLS = (Effect.READ.value, Effect.KEYED.value, Effect.WRITE.value)  # each is called by its effect
LOG_VARIABLE = "TURN_LOG"  # no KEYTURN_ name: those are settings, and unknown ones are refused


@dataclass(frozen=True, slots=True)
class Script:
    """What one message asks for."""

    n: str
    words: dict[str, str]

    @classmethod
    def read(cls, text: str) -> Script:
        pairs = (word.partition("=") for word in text.split())
        words = {name: value for name, _, value in pairs}
        return cls(words.get("n", "?"), words)

    def asks(self, word: str, attempt: int) -> bool:
        """Whether `word` is to happen on this attempt."""
        value = self.words.get(word)
        return value is not None and (not value or attempt <= int(value))

    def seconds(self, word: str) -> float:
        return int(self.words.get(word, "0")) / 1000

    @property
    def tools(self) -> list[str]:
        """The effects of the tools that it calls, in order."""
        return [TOOLS[n % len(TOOLS)] for n in range(int(self.words.get("tools", "0")))]

    @property
    def replies(self) -> list[str]:
        """What the chat will be told if the turn succeeds."""
        if "silent" in self.words:
            return []
        parts = int(self.words.get("parts", "1"))
        return [f"done {self.n}" if parts == 1 else f"done {self.n} {part}/{parts}" for part in range(1, parts + 1)]


class ScriptedAgent:
    def __init__(self) -> None:
        self._pid = 0
        self._worker = 0
        self._file = -1

    async def run(self, turn: Turn) -> Result:
        script = Script.read("\n".join(inbound.text for inbound in turn.mail))
        self._note("begin", turn)
        try:
            result = await self._obey(script, turn)
        except BaseException as error:
            self._note("failed", turn, type(error).__name__)
            raise
        self._note("end", turn)
        return result

    async def _obey(self, script: Script, turn: Turn) -> Result:
        if _is_provider_away():
            raise Outage("the provider answers nobody", provider="scripted", status=503)
        if seconds := script.seconds("sleep") + (script.seconds("linger") if turn.attempt == 1 else 0):
            await asyncio.sleep(seconds)
        rows = await self._call_tools(script, turn)
        if script.asks("crash", turn.attempt):
            self._note("crash", turn)
            os.kill(os.getpid(), signal.SIGKILL)
        if script.asks("hang", turn.attempt):
            await asyncio.Event().wait()
        if "refuse" in script.words:
            raise Permanent("refused by script")
        if script.asks("raise", turn.attempt):
            raise RuntimeError("raised by script")
        entries = tuple(Entry("assistant", text) for text in script.replies)
        return Result((*rows, *entries), tuple(Reply(text) for text in script.replies))

    async def _call_tools(self, script: Script, turn: Turn) -> list[Entry]:
        """The rows that are new: earlier attempts' are known."""
        rows: list[Entry] = []
        if not script.tools:
            return rows
        if not turn.rows:
            made = [{"id": f"call_{n}", "name": name, "arguments": "{}"} for n, name in enumerate(script.tools, 1)]
            rows.append(Entry("assistant", "", data={"tool_calls": made}))
            await turn.steps.response(rows[0])
        answered = {row.data.get("tool_call_id") for row in turn.rows}
        for n, name in enumerate(script.tools, 1):
            if (id := f"call_{n}") in answered:
                continue

            async def do(key: str, what: str = f"{id} {name}") -> str:
                self._note("effect", turn, tool=f"{what} {key}")
                await asyncio.sleep(0.001)
                return "done"

            stepped = await turn.steps.call(Call(id, name), do, Effect(name))
            if stepped.how is How.RAN:
                self._note("finished", turn, tool=f"{id} {name}")
            text = (
                stepped.text if stepped.how is How.UNKNOWN else stepped.how.value
            )  # unknown: as the transcript marks it
            rows.append(Entry("tool", text, data={"tool_call_id": id, "name": name}))
        return rows

    def _note(self, event: str, turn: Turn, error: str = "", tool: str = "") -> None:
        """Append one line. One write call each: a killed process can leave its last line unfinished, and no other."""
        if LOG_VARIABLE not in os.environ:
            return
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._worker = _worker()
            path = Path(os.environ[LOG_VARIABLE]) / f"{self._pid}.jsonl"
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        line = {
            "event": event,
            "at": time.monotonic(),
            "pid": self._pid,
            "worker": self._worker,
            "key": turn.session_key,
            "message": turn.mail[0].id,
            "turn": turn.id,
            "attempt": turn.attempt,
        }
        line |= {name: value for name, value in (("error", error), ("tool", tool)) if value}
        os.write(self._file, orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))


def _worker() -> int:
    """The worker process that this turn dies with: this one, or the one that started the fork server that forked it."""
    if not sys.argv[0].endswith("workers/agents/fork_server.py"):
        return os.getpid()
    return int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])


def _is_provider_away() -> bool:
    return LOG_VARIABLE in os.environ and (Path(os.environ[LOG_VARIABLE]) / AWAY).exists()


@contextmanager
def provider_away(turn_log: Path) -> Iterator[None]:
    """Every agent that writes this log fails as the llm agent does when its provider answers 503, until the block ends."""
    (turn_log / AWAY).touch()
    try:
        yield
    finally:
        (turn_log / AWAY).unlink()


agent = ScriptedAgent()


@dataclass(frozen=True, slots=True)
class Noted:
    """One line of a turn log."""

    event: str  # begin, then end, failed or crash; none of them when the process was killed. Between: effect, finished
    at: float  # CLOCK_MONOTONIC, the same for every process of this machine
    pid: int
    worker: int  # the same, or the process of the worker that had this turn run isolated
    key: str
    message: str
    turn: str
    attempt: int
    error: str = ""
    tool: str = ""  # of a finished call: its id and its effect; of an effect also the idempotency key

    @property
    def over(self) -> bool:
        """The attempt came to an end that its worker saw."""
        return self.event in ("end", "failed")


def read_log(directory: Path) -> list[Noted]:
    """Everything that all processes noted, in the order in which it happened.

    A kill can cut a write short where it crosses a page: what stands behind a file's last newline was never noted.
    """
    lines = [line for path in directory.glob("*.jsonl") for line in path.read_bytes().split(b"\n")[:-1]]
    return sorted((Noted(**orjson.loads(line)) for line in lines), key=lambda noted: noted.at)
