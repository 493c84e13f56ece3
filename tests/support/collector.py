"""A collector of traces: takes what OpenTelemetry's exporter sends, in threads of its own, for a process waits for it when it ends."""

from __future__ import annotations

import gzip
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Collector:
    url: str = ""
    answers: list[int] = field(default_factory=list)  # the statuses of the first requests; then 200
    headers: list[dict[str, str]] = field(default_factory=list)  # of each request
    taken: list[ExportTraceServiceRequest] = field(default_factory=list)  # of those answered with 200

    def spans(self) -> list[Span]:
        return [
            span
            for sent in self.taken
            for of in sent.resource_spans
            for scope in of.scope_spans
            for span in scope.spans
        ]


@contextmanager
def open_collector() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.headers.append({name.lower(): value for name, value in self.headers.items()})
            status = collector.answers.pop(0) if collector.answers else 200
            if status == 200:
                match self.headers["content-encoding"]:
                    case "gzip":
                        body = gzip.decompress(body)
                    case "deflate":
                        body = zlib.decompress(body)
                collector.taken.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(status)
            self.send_header("content-length", "0")
            self.send_header("retry-after", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        collector.url = f"http://127.0.0.1:{server.server_port}/v1/traces"
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
