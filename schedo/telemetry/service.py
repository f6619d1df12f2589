"""The telemetry of a server: what it observes, and its start and stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from opentelemetry.sdk.resources import SERVICE_NAME, Resource

from schedo.clock import Clock
from schedo.core.changes import Changes
from schedo.core.leases import Lease
from schedo.core.model import LeaseKey
from schedo.engine.metrics import Metrics
from schedo.protocol.prometheus import Family
from schedo.telemetry.notes import Note, take_notes
from schedo.telemetry.sender import Reading, Sender
from schedo.telemetry.settings import TelemetrySettings
from schedo.telemetry.spans import SpanMaker
from schedo.version import __version__

log = logging.getLogger("schedo.telemetry")

ReadFamilies = Callable[[], Awaitable[list[Family]]]

STOP_S = 3.0  # for what waits at the stop
LAST_READING_S = 1.0


class Telemetry:
    """Observes one engine; see engine/observing.py."""

    def __init__(self, settings: TelemetrySettings, clock: Clock) -> None:
        # No operator needs its log; the failures of its exporter are read in exporter_failures.py.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._settings = settings
        self._clock = clock
        resource = _make_resource()
        self._maker = SpanMaker(resource)
        self._sender = Sender(self._maker, resource, settings)
        self._reader: asyncio.Task[None] | None = None
        self._has_bug = False  # one that was logged

    # As an observer.

    @property
    def dropped(self) -> int:
        """How many spans were dropped since the start."""
        return self._sender.dropped

    def use_store(self, store_id: int) -> None:
        """Note whose jobs follow."""
        self._maker.use_store(store_id)

    def mark(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Return the leases with the spans of their attempts, which workers continue."""
        if not self._settings.sends_traces:
            return leases
        try:
            return [self._maker.mark(lease) for lease in leases]
        except Exception:  # of a sampler that is a plugin
            self._note_bug()
            return leases

    def _note_bug(self) -> None:
        if not self._has_bug:
            self._has_bug = True
            log.exception("attempts have no trace context; this is logged once")

    def note(self, changes: Changes, ended: Iterable[LeaseKey]) -> list[Note]:
        """Note what a commit is about to make durable."""
        return take_notes(changes, ended) if self._settings.sends_traces else []

    def durable(self, notes: list[Note], now: int) -> None:
        """Queue the notes of a commit that is on the disk."""
        self._sender.add(notes, now)

    # Life.

    def start(self, read_families: ReadFamilies, metrics: Metrics) -> None:
        """Begin to send; metrics: those that read_families reads."""
        self._sender.start()
        if self._settings.sends_metrics:
            self._read = partial(self._read_metrics, read_families, metrics)
            self._reader = asyncio.create_task(self._read_regularly(), name="schedo telemetry")

    async def _read_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._settings.interval_s)
            await self._read()

    async def _read_metrics(self, read_families: ReadFamilies, metrics: Metrics) -> None:
        try:
            families = await read_families()
        except Exception as error:  # the store may have failed; the next reading comes
            log.warning("the metrics could not be read: %s", error)
            return
        self._sender.read(Reading(families, metrics.began_at, self._clock.now()))

    async def end_metrics(self) -> None:
        """Read the metrics for the last time, while the engine still runs."""
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_READING_S):
                    await self._read()

    async def stop(self) -> None:
        """Send what waits, for STOP_S at most; the rest is lost."""
        if not await asyncio.to_thread(self._sender.stop, STOP_S):
            log.warning("not all spans could be sent within %g s; the last spans are lost", STOP_S)


def _make_resource() -> Resource:
    """Return what OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME say, or else the name schedo."""
    found = Resource.create({"service.version": __version__})
    if str(found.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        return found.merge(Resource({SERVICE_NAME: "schedo"}))
    return found
