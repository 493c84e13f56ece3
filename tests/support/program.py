"""A program that answers turns, for AGENT=command. Run as a script; it imports nothing of ours.

The message says what to do, as for tests/support/answering.py; see `main` for what else it may say.
"""

import json
import os
import signal
import subprocess
import sys
import time

LONG_SECONDS = 600


def event(**content: object) -> None:
    print(json.dumps(content), flush=True)


def grow(path: str) -> None:
    """Start processes that try to outlive this one, and write down their ids, ours first."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleep = ["sleep", str(LONG_SECONDS)]
    child = subprocess.Popen(sleep)
    nohup = subprocess.Popen(["nohup", "setsid", *sleep], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    script = f"env -i {' '.join(sleep)} >/dev/null 2>&1 & echo $!"
    orphan = subprocess.run(["setsid", "sh", "-c", script], stdout=subprocess.PIPE, check=True).stdout.strip()
    with open(f"{path}.new", "w") as file:
        file.write(f"{os.getpid()} {child.pid} {nohup.pid} {int(orphan)}")
    os.rename(f"{path}.new", path)


def main() -> None:
    turn = json.loads(sys.stdin.readline())
    text = turn["turn"]["mail"][0]["text"]
    word, _, rest = text.partition(" ")
    as_events = "--events" in sys.argv
    match word:
        case "say" if as_events:
            for piece in rest:
                event(delta=piece)
            event(row={"role": "assistant", "text": rest})
            event(done=[{"text": rest}])
        case "say":
            for piece in rest:
                sys.stdout.write(piece)
                sys.stdout.flush()
            print()
        case "deltas":
            event(delta=rest)
        case "spend":
            event(v=1, spent={"model": "m", "requests": 1, "input": 5, "output": 0})
            event(row={"role": "assistant", "text": "paid", "data": {"usage": {"model": "m", "input": 7}}})
        case "write":
            sys.stdout.write(rest)
        case "show":
            print(json.dumps({"environment": dict(os.environ), "directory": os.getcwd(), "turn": turn}))
        case "many":
            sys.stdout.write("x" * int(rest))
        case "complain":
            sys.stderr.write(rest + "\n")
            print("done")
        case "refuse":
            sys.exit(77)
        case "fail":
            sys.exit(1)
        case "exit":
            sys.exit(int(rest))
        case "die":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hang":
            if rest:
                with open(rest, "w") as file:
                    file.write(str(os.getpid()))
            time.sleep(LONG_SECONDS)
        case "grow":
            grow(rest)
            print("growing", flush=True)
            time.sleep(LONG_SECONDS)
        case "leave":
            grow(rest)
            print("left")


if __name__ == "__main__":
    main()
