"""A collector: a real HTTP server that takes OTLP and decodes its messages."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

DEADLINE_S = 20.0


def values(attributes: Any) -> dict[str, Any]:
    """Return attributes as plain data."""
    found: dict[str, KeyValue] = {each.key: each for each in attributes}
    return {
        key: getattr(each.value, each.value.WhichOneof("value") or "string_value")
        for key, each in found.items()
    }


class Collector:
    """What has arrived; `status` is what it answers, and `is_free` lets it answer."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.metrics: dict[str, Metric] = {}
        self.resources: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.requests = 0
        self.status = 200
        self.is_free = threading.Event()
        self.is_free.set()
        self._changed = threading.Condition()
        self.url = ""

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        """Take a request; return the status of the response."""
        with self._changed:
            self.requests += 1
            self._changed.notify_all()
        self.is_free.wait(DEADLINE_S)
        with self._changed:
            if self.status == 200:
                self.headers.append(headers)
                self._decode(path, body)
            self._changed.notify_all()
        return self.status

    def _decode(self, path: str, body: bytes) -> None:
        if path.endswith("/v1/traces"):
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(values(group.resource.attributes))
                self.spans += [span for scope in group.scope_spans for span in scope.spans]
        else:
            assert path.endswith("/v1/metrics"), path
            for each in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self.resources.append(values(each.resource.attributes))
                found = [metric for scope in each.scope_metrics for metric in scope.metrics]
                self.metrics |= {metric.name: metric for metric in found}

    def wait(self, is_there: Callable[[], bool]) -> None:
        """Return once the condition holds."""
        with self._changed:
            assert self._changed.wait_for(is_there, DEADLINE_S), [each.name for each in self.spans]

    def named(self, name: str) -> list[Span]:
        """Return the spans with this name, the earliest first."""
        found = [span for span in self.spans if span.name == name]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    def wait_for(self, name: str, count: int = 1) -> list[Span]:
        """Return the spans with this name once there are `count` of them."""
        self.wait(lambda: len(self.named(name)) >= count)
        return self.named(name)


class _Handler(BaseHTTPRequestHandler):
    collector: ClassVar[Collector]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        status = self.collector.take(self.path, headers, body)
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector during the block."""
    collector = Collector()
    handler = type("_Bound", (_Handler,), {"collector": collector})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        collector.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield collector
        finally:
            collector.is_free.set()
            server.shutdown()
            thread.join()
