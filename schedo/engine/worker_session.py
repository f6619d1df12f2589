"""The session of one remote worker: the leases it holds, its next response and its status."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from typing import Literal

from schedo.core.leases import Lease, Outcome, StopRequest
from schedo.core.model import LeaseKey
from schedo.core.worker_messages import WorkerStatus
from schedo.core.worker_pool import Worker, WorkerSpec
from schedo.engine.liveness import SessionTimer

RESTART_TIMEOUT_S = 30.0  # at least, for workers of the previous server
UNPOLLED_S = 30.0  # with free slots and no poll for so long, a worker has a problem
REPORTED_KEPT = 4_096
PREVIOUS_KEPT = 16

# The workers in the engine's own process; the second runs poison suspects, one at a time.
EMBEDDED = "embedded"
EMBEDDED_ALONE = "embedded-alone"


class Held:
    """A lease that the worker has, as far as the server knows."""

    __slots__ = ("is_recovered", "is_stop_sent", "is_unconfirmed", "lease", "sent_at", "stop")

    def __init__(self, lease: Lease, sent_at: float | None, *, is_recovered: bool = False) -> None:
        self.lease = lease
        self.sent_at = sent_at  # the loop's time; None: no response carries it yet
        self.is_recovered = is_recovered  # the previous server may have sent it
        self.is_unconfirmed = is_recovered  # the worker has not listed it since
        self.stop: StopRequest | None = None
        self.is_stop_sent = False


class Session:
    """One remote worker as the server knows it, and the engine's transport to it."""

    def __init__(self, name: str, spec: WorkerSpec) -> None:
        self.name = name
        self.session_id: str | None = None  # None: expected after a restart
        self.spec = spec
        self.session_timeout_s = RESTART_TIMEOUT_S
        self.held: dict[LeaseKey, Held] = {}
        self.reported: dict[LeaseKey, int] = {}  # hashes of recent outcomes, oldest first
        self.waiter: asyncio.Future[None] | None = None
        self.connected_at: int | None = None
        self.last_seen_at: int | None = None
        self.polled_at = 0.0  # the loop's time
        self.previous_session_ids: deque[str] = deque(maxlen=PREVIOUS_KEPT)
        self.timer: SessionTimer | None = None  # of the session timeout
        self.is_broken = False  # the connection of its last poll broke
        self.revoked: dict[LeaseKey, None] = {}  # leases that ended without a late result so far
        self.unacknowledged = 0  # leases in a row that did not arrive
        self.open_requests = 0  # requests without a response so far
        self.supports_offers = False
        self.is_connected = False
        self.is_draining = False  # the worker has announced it
        self.drain_requested = False  # an operator has requested it

    # Transport.

    def start(self, lease: Lease) -> None:
        """Put the lease into the next response."""
        self.held[lease.key] = Held(lease, None)
        self.wake()

    def stop(self, stop: StopRequest) -> None:
        """Put the stop request into every response until the attempt ends."""
        held = self.held.get(stop.key)
        if held is not None:
            held.stop = stop
            self.wake()

    def wake(self) -> None:
        """Complete the open poll."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    @property
    def is_listening(self) -> bool:
        """Whether the session timeout runs."""
        return self.timer is not None and self.timer.is_expecting

    def stop_listening(self) -> None:
        """Suspend the session timeout."""
        if self.timer is not None:
            self.timer.cancel()

    # The next response.

    def has_response(self) -> bool:
        """Whether the next response has a new lease or a new stop request."""
        return any(
            held.sent_at is None or (held.stop is not None and not held.is_stop_sent)
            for held in self.held.values()
        )

    def take_new(self, now: float) -> list[Lease]:
        """Return the leases that no response has carried yet; `now` is the loop's time."""
        fresh = [held for held in self.held.values() if held.sent_at is None]
        for held in fresh:
            held.sent_at = now
        return [held.lease for held in fresh]

    def take_stops(self) -> list[StopRequest]:
        """Return all stop requests, sent before or not."""
        stopped = [held for held in self.held.values() if held.stop is not None]
        for held in stopped:
            held.is_stop_sent = True
        return [held.stop for held in stopped if held.stop is not None]

    def note_revoked(self, key: LeaseKey) -> None:
        """Keep the key of an attempt that the worker had, to record its late result."""
        self.revoked[key] = None
        if len(self.revoked) > REPORTED_KEPT:
            del self.revoked[next(iter(self.revoked))]

    def note_reported(self, key: LeaseKey, outcome: Outcome) -> None:
        """Remember the outcome: the same report may be repeated, a different one is refused."""
        self.note_revoked(key)
        self.reported[key] = _hash(outcome)
        if len(self.reported) > REPORTED_KEPT:
            del self.reported[next(iter(self.reported))]

    def is_first_late_result(self, key: LeaseKey) -> bool:
        """Whether a late result is the first one of its attempt; the engine records only that."""
        return self.revoked.pop(key, key) is None

    def has_reported(self, key: LeaseKey, outcome: Outcome) -> bool:
        """Whether the worker has reported this outcome of the attempt before."""
        return self.reported.get(key) == _hash(outcome)


def _hash(outcome: Outcome) -> int:
    return hash((type(outcome).__name__, outcome))


def is_polling(spec: WorkerSpec) -> WorkerSpec:
    """Return the spec of a worker that gets leases only by polling."""
    return replace(spec, polls=True)


def kind(name: str) -> Literal["remote", "process", "server", "embedded"]:
    """Return where the worker of this name runs; the server's own workers have reserved names."""
    if name in (EMBEDDED, EMBEDDED_ALONE):
        return "embedded"
    if name == "local":
        return "server"
    return "process" if name.startswith("process-") else "remote"


def state(worker: Worker, session: Session | None) -> str:
    """Return the worker's state: active, cordoned, draining or away."""
    if session is not None and not session.is_connected:
        return "disconnected"
    if not worker.is_open or (session is not None and session.is_draining):
        return "draining"
    if session is not None and session.drain_requested:
        return "draining"
    return "cordoned" if worker.is_cordoned else "active"


def find_health_problem(worker: Worker, session: Session | None) -> str | None:
    """Return the health problem of a worker with free slots that does not poll, or None."""
    if session is None or session.is_draining or session.waiter is not None:
        return None
    if not session.is_connected:
        return "it is not connected"
    if worker.spec.slots <= len(worker.running):
        return None
    unpolled_s = asyncio.get_running_loop().time() - session.polled_at
    if unpolled_s <= UNPOLLED_S:
        return None
    return f"it has free slots, but has not polled for {unpolled_s:.0f} s"


def status(worker: Worker, session: Session | None) -> WorkerStatus:
    """Return the worker's status for operators; the server's own workers have no session."""
    spec = worker.spec
    return WorkerStatus(
        spec.id,
        kind(spec.id),
        state(worker, session),
        spec.slots,
        len(worker.running),
        spec.tasks,
        spec.queues,
        spec.labels,
        spec.resources,
        {name: used for name, used in worker.used.items() if used},
        spec.version,
        session.connected_at if session is not None else None,
        session.last_seen_at if session is not None else None,
        session.session_timeout_s if session is not None else None,
        find_health_problem(worker, session),
    )
