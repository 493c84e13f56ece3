#!/bin/sh
# An agent that is a program: it reads the turn as JSON on stdin, and what it writes is the answer.
#
# Start it in this directory:
#
#     KEYTURN_COMMAND__LINE="sh $PWD/command_agent.sh" ../../run up --agent command

read -r turn
text=$(printf '%s' "$turn" | python3 -c 'import json, sys; print(json.load(sys.stdin)["turn"]["mail"][-1]["text"])')
echo "You said $(printf '%s' "$text" | wc -w | tr -d ' ') words."
