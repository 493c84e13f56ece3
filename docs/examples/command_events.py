"""An agent that is a program and says events, one in each line: its answer is streamed, and a tool call is seen.

Start it in this directory:

    KEYTURN_COMMAND__LINE="python3 $PWD/command_events.py" KEYTURN_COMMAND__OUTPUT=events ../../run up --agent command
"""

import json
import sys


def say(**event: object) -> None:
    print(json.dumps(event), flush=True)


turn = json.loads(sys.stdin.readline())["turn"]
text = turn["mail"][-1]["text"]

call = {"id": "call_1", "name": "count", "arguments": json.dumps({"text": text})}
say(began=call)
count = len(text.split())
say(ended={"call": call, "ok": True, "text": str(count)})

answer = f"You said {count} words."
for word in answer.split():
    say(delta=f"{word} ")
say(row={"role": "assistant", "text": answer})
say(done=[{"text": answer}])
