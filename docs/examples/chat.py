"""Ask for an answer in OpenAI's form and print it as it is written. Needs nothing but Python.

KEYTURN_API__KEYS is the same as for `run up`. Usage: python chat.py [TEXT] [URL]
"""

import json
import os
import sys
import urllib.error
import urllib.request

text = sys.argv[1] if len(sys.argv) > 1 else "hello"
url = sys.argv[2] if len(sys.argv) > 2 else "http://localhost:8080/v1/chat/completions"

body = {"model": "main", "messages": [{"role": "user", "content": text}], "stream": True}
headers = {
    "authorization": f"Bearer {os.environ['KEYTURN_API__KEYS'].split(',')[0]}",
    "content-type": "application/json",
    "x-keyturn-session": "c1",  # the conversation; without it, nothing of the request is kept
}
request = urllib.request.Request(url, json.dumps(body).encode(), headers)
try:
    response = urllib.request.urlopen(request)
except urllib.error.HTTPError as error:  # 401: the key is not one of `run up`
    sys.exit(f"{url} answers {error.code}: {error.read().decode()}")
except urllib.error.URLError as error:
    sys.exit(f"{url} does not answer: {error.reason}")
with response:
    for line in response:
        if not line.startswith(b"data: "):
            continue  # a comment, which keeps the connection alive
        if line.strip() == b"data: [DONE]":
            break
        chunk = json.loads(line.removeprefix(b"data: "))
        if "error" in chunk:
            sys.exit(chunk["error"]["message"])
        print(chunk["choices"][0]["delta"].get("content", ""), end="", flush=True)
print()
