"""An MCP server of the revision 2024-11-05, without the SDK: it knows `initialize`, `tools/list` and `tools/call`."""

from __future__ import annotations

import json
import sys

TOOL = {"name": "greet", "description": "Greet.", "inputSchema": {"type": "object", "properties": {}}}
RESULTS = {
    "initialize": {
        "protocolVersion": "2024-11-05",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "old", "version": "1"},
    },
    "tools/list": {"tools": [TOOL]},
    "tools/call": {"content": [{"type": "text", "text": "hello from 2024"}]},
}


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        if asked["method"] in RESULTS:
            answer = {"result": RESULTS[asked["method"]]}
        else:
            answer = {"error": {"code": -32601, "message": "Method not found"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)


if __name__ == "__main__":
    main()
