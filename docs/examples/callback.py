"""Receive the replies of the generic webhook: check each signature, print the text, take a repeated reply once.

KEYTURN_WEBHOOK__SECRETS is the same as for `run up`, whose KEYTURN_WEBHOOK__CALLBACK_URL points here.
Usage: python callback.py [PORT]
"""

import base64
import hmac
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

SECRET = base64.b64decode(os.environ["KEYTURN_WEBHOOK__SECRETS"].split(",")[0].removeprefix("whsec_"))
MAX_AGE_SECONDS = 300

seen: set[str] = set()  # ids of replies; a real receiver keeps them in its database, with what it does


class Callback(BaseHTTPRequestHandler):
    """Answers 401 to what is not signed by Keyturn, and 204 to what was taken. After any other answer Keyturn tries again."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        id, at = self.headers.get("webhook-id", ""), self.headers.get("webhook-timestamp", "0")
        signature = base64.b64encode(hmac.digest(SECRET, f"{id}.{at}.".encode() + body, "sha256")).decode()
        signed = hmac.compare_digest(self.headers.get("webhook-signature", ""), f"v1,{signature}")
        if not signed or abs(time.time() - int(at)) > MAX_AGE_SECONDS:
            self.send_response(401)
        else:
            if id not in seen:
                seen.add(id)
                reply = json.loads(body)
                print(f"{reply['chat']['id']}: {reply['text']}", flush=True)
            self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print replies only."""


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 9000
    HTTPServer(("127.0.0.1", port), Callback).serve_forever()
