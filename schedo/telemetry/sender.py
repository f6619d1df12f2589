"""The thread that makes spans of the notes and sends spans and metrics.

It rests after each request for as long as it was busy, because it shares the interpreter with the
event loop. So it takes half of a processor at most, and what is more than that is dropped and
counted. While the collector is away or hangs, notes wait in the queue until it is full.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import TYPE_CHECKING, NamedTuple

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.trace.export import SpanExportResult

from schedo.protocol.prometheus import Family
from schedo.telemetry.exporter_failures import ExporterFailures
from schedo.telemetry.metrics import to_metrics_data
from schedo.telemetry.notes import Note
from schedo.telemetry.settings import TelemetrySettings, read_address

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan

    from schedo.telemetry.spans import SpanMaker

log = logging.getLogger("schedo.telemetry")

LOGGED_EVERY_S = 3_600.0


class Reading(NamedTuple):
    """The metrics at an instant; began_at: since when they count. Both are in microseconds."""

    families: Sequence[Family]
    began_at: int
    now: int


class Outage:
    """Logs when a signal cannot be sent, once an hour while it cannot, and when it can again."""

    def __init__(self, what: str, address: str, consequence: str) -> None:
        self._what = what
        self._address = address
        self._consequence = consequence
        self._logged_at: float | None = None

    def note(self, failure: str | None) -> None:
        """Note a request that has succeeded (None), or why it failed."""
        now = time.monotonic()
        if failure is None:
            if self._logged_at is not None:
                log.info("the collector at %s takes %s again", self._address, self._what)
            self._logged_at = None
        elif self._logged_at is None or now - self._logged_at >= LOGGED_EVERY_S:
            log.warning(
                "the OpenTelemetry collector at %s does not take %s: %s; %s",
                self._address,
                self._what,
                failure,
                self._consequence,
            )
            self._logged_at = now


class Sender:
    """The queue and its thread. `add` and `read` are for the event loop, and never wait."""

    def __init__(self, maker: SpanMaker, resource: Resource, settings: TelemetrySettings) -> None:
        self._maker = maker
        self._resource = resource
        self._settings = settings
        self._spans = OTLPSpanExporter() if settings.sends_traces else None
        self._metrics = OTLPMetricExporter() if settings.sends_metrics else None
        self._failures = ExporterFailures()
        spans_are_lost = (
            "spans wait in the queue; what does not fit into it, and what a request could not"
            " deliver, is dropped and counted in schedo_otel_dropped_total"
        )
        self._outages = (
            Outage("spans", read_address(os.environ, "TRACES"), spans_are_lost),
            Outage("metrics", read_address(os.environ, "METRICS"), "the next reading comes"),
        )
        self._waiting: deque[tuple[list[Note], int]] = deque()
        # Each is written by one thread only, so neither needs a lock.
        self._added = self._taken = 0
        self._refused = self._failed = 0
        self._reading: Reading | None = None
        self._has_bug = False  # one that was logged
        self._has_ended = False  # what is sent now fails, because the exporters are shut down
        self._wake, self._stopping = Event(), Event()
        self._thread = Thread(target=self._run, name="schedo telemetry", daemon=True)

    @property
    def dropped(self) -> int:
        """How many spans were dropped: the queue was full, or the collector did not take them."""
        return self._refused + self._failed

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add(self, notes: list[Note], durable_at: int) -> None:
        """Queue the notes of a commit, or as many of them as there is room for."""
        room = self._settings.waiting_max - (self._added - self._taken)
        if len(notes) > room:
            self._refused += len(notes) - max(room, 0)
            notes = notes[: max(room, 0)]
        if notes:
            self._added += len(notes)
            self._waiting.append((notes, durable_at))
            if self._added - self._taken >= self._settings.batch_max:
                self._wake.set()

    def read(self, reading: Reading) -> None:
        """Send the metrics; if the last ones still wait, these take their place."""
        self._reading = reading
        self._wake.set()

    def stop(self, timeout_s: float) -> bool:
        """Send what waits, for a bounded time; return whether all was sent or given up."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():  # its request ends with the process
            self._has_ended = True
            for exporter in (self._spans, self._metrics):
                if exporter is not None:
                    exporter.shutdown()
            return False
        return True

    # In the thread.

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait(self._settings.delay_s)
            self._wake.clear()
            self._send_all()
        self._send_all()

    def _send_all(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            self._paced(lambda: self._send_metrics(reading))
        while self._waiting:
            self._paced(self._send_batch)

    def _paced(self, work: Callable[[], None]) -> None:
        began = time.thread_time()
        try:
            work()
        except Exception:  # of a sampler that is a plugin, for example: the next batch may succeed
            if not self._has_bug:
                self._has_bug = True
                log.exception("spans or metrics cannot be made; this is logged once")
        self._stopping.wait(time.thread_time() - began)

    def _send_batch(self) -> None:
        """Send the spans of the next notes in one request."""
        spans: list[ReadableSpan] = []
        while self._waiting and len(spans) < self._settings.batch_max:
            notes, durable_at = self._waiting.popleft()
            self._taken += len(notes)
            try:
                spans += self._maker.make(notes, durable_at)
            except Exception:
                self._failed += len(notes)
                raise
        for start in range(0, len(spans), self._settings.batch_max):
            self._send_spans(spans[start : start + self._settings.batch_max])

    def _send_spans(self, spans: list[ReadableSpan]) -> None:
        assert self._spans is not None, "without it there are no notes"
        self._failures.clear()
        is_sent = self._spans.export(spans) is SpanExportResult.SUCCESS
        if not is_sent:
            self._failed += len(spans)
        if not self._has_ended:
            self._outages[0].note(None if is_sent else self._failures.first)

    def _send_metrics(self, reading: Reading) -> None:
        assert self._metrics is not None, "without it there are no readings"
        data = to_metrics_data(reading.families, self._resource, reading.began_at, reading.now)
        self._failures.clear()
        is_sent = self._metrics.export(data) is MetricExportResult.SUCCESS
        self._outages[1].note(None if is_sent else self._failures.first)
