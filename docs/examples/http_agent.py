"""An agent that is a server: Keyturn posts each turn to it. Needs nothing but Python.

Start it in this directory, and Keyturn beside it:

    python3 http_agent.py 9001 &
    KEYTURN_HTTP__URL=http://127.0.0.1:9001/ KEYTURN_HTTP__TOKEN=secret ../../run up --agent http
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        if self.headers["authorization"] != "Bearer secret":
            self.send_error(401)
            return
        turn = json.loads(self.rfile.read(int(self.headers["content-length"])))["turn"]
        answer = f"You said {len(turn['mail'][-1]['text'].split())} words."
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for word in answer.split():
            self._say(delta=f"{word} ")
        self._say(row={"role": "assistant", "text": answer})
        self._say(done=[{"text": answer}])  # the end: without it, Keyturn takes the stream for a broken one

    def _say(self, **event: object) -> None:
        self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        self.wfile.flush()


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
