"""Send one signed message to the generic webhook. Needs nothing but Python.

KEYTURN_WEBHOOK__SECRETS is the same as for `run up`. Usage: python send.py [TEXT] [URL]
"""

import base64
import hmac
import json
import os
import sys
import time
import urllib.error
import urllib.request
import uuid

text = sys.argv[1] if len(sys.argv) > 1 else "hello"
url = sys.argv[2] if len(sys.argv) > 2 else "http://localhost:8080/webhooks/webhook"

secret = base64.b64decode(os.environ["KEYTURN_WEBHOOK__SECRETS"].split(",")[0].removeprefix("whsec_"))
id = f"evt_{uuid.uuid4().hex}"  # send the same id again after an error: Keyturn takes each id once
at = int(time.time())
body = json.dumps({"chat": {"id": "c1"}, "user": {"id": "u1"}, "text": text})
signature = base64.b64encode(hmac.digest(secret, f"{id}.{at}.{body}".encode(), "sha256")).decode()
headers = {"webhook-id": id, "webhook-timestamp": str(at), "webhook-signature": f"v1,{signature}"}
request = urllib.request.Request(url, body.encode(), headers)
try:
    print(urllib.request.urlopen(request).read().decode())  # {"status":"accepted","id":"in_…"}
except urllib.error.HTTPError as error:  # 401: the secret is not that of `run up`
    sys.exit(f"{url} answers {error.code}: {error.read().decode()}")
except urllib.error.URLError as error:
    sys.exit(f"{url} does not answer: {error.reason}")
