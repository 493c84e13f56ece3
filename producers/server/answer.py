"""A short answer, written at once.

Starlette hands an answer on in two messages. uvicorn looks each header over with two patterns, and writes head and body apart:
two packets, and two calls of the system. An answer whose headers are all ours goes out as it is: about 5 µs of CPU less, in a
receiver that takes about 60 for a request.
"""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle


class WholeAnswer(Response):
    """As Starlette's Response for these bytes. On a connection of ours it leaves as one write, unless anything is unusual:
    then it goes the way of all others."""

    def __init__(self, body: bytes = b"", status: int = 200, media_type: str = "") -> None:
        length = b"%d" % len(body)
        self.status_code = status
        self.body = body
        self.background = None
        self.raw_headers = [(b"content-length", length)]
        head = b"%bcontent-length: %b\r\n" % (STATUS_LINE[status], length)
        if media_type:
            kind = media_type.encode()
            self.raw_headers.append((b"content-type", kind))
            head += b"content-type: %b\r\n" % kind
        self._own_headers = len(self.raw_headers)
        self._whole = b"%b\r\n%b" % (head, body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        cycle = getattr(send, "__self__", None)
        if isinstance(cycle, RequestResponseCycle) and self._is_unchanged and _is_usual(cycle):
            _write(cycle, self._whole)
        else:
            await super().__call__(scope, receive, send)

    @property
    def _is_unchanged(self) -> bool:
        """Whether nobody added a header."""
        return len(self.raw_headers) == self._own_headers


def _is_usual(cycle: RequestResponseCycle) -> bool:
    """Whether uvicorn would add nothing to the answer and write it without waiting."""
    return (
        cycle.keep_alive
        and cycle.scope["method"] == "POST"
        and not cycle.disconnected
        and not cycle.response_started
        and not cycle.flow.write_paused
        and not cycle.default_headers
        and not cycle.access_log
    )


def _write(cycle: RequestResponseCycle, whole: bytes) -> None:
    """What `cycle.send` does for both messages of a complete answer."""
    cycle.waiting_for_100_continue = False
    cycle.response_started = cycle.response_complete = True
    cycle.transport.write(whole)
    cycle.message_event.set()
    cycle.on_response()
