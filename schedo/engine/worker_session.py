"""One worker on another machine: what it has been given, and how it looks."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from typing import Literal

from schedo.core.leases import Lease, Outcome, StopRequest
from schedo.core.model import LeaseKey
from schedo.core.worker_pool import Worker, WorkerSpec
from schedo.engine.liveness import Silence
from schedo.engine.worker_messages import WorkerStatus

RESTART_SILENCE_S = 30.0  # at least, for a worker that the last server had
UNASKED_S = 30.0  # with free slots and no request for work: it is not well
SETTLED_KEPT = 4_096
FORMER_KEPT = 16

# The workers in the engine's own process; the second runs what may have killed it, one at a time.
EMBEDDED = "embedded"
EMBEDDED_ALONE = "embedded-alone"


class Held:
    """A lease that the worker has, as far as the server knows."""

    __slots__ = ("given_at", "is_expected", "is_stop_told", "is_unconfirmed", "lease", "stop")

    def __init__(self, lease: Lease, given_at: float | None, *, is_expected: bool = False) -> None:
        self.lease = lease
        self.given_at = given_at  # the loop's time; None: it is not in an answer yet
        self.is_expected = is_expected  # the last server gave it, perhaps
        self.is_unconfirmed = is_expected  # its worker has not said since that it runs it
        self.stop: StopRequest | None = None
        self.is_stop_told = False


class Session:
    """One worker as the server knows it; the engine's way to it."""

    def __init__(self, name: str, offer: WorkerSpec) -> None:
        self.name = name
        self.session_id: str | None = None  # None: it was expected, and has not come yet
        self.offer = offer
        self.session_timeout_s = RESTART_SILENCE_S
        self.held: dict[LeaseKey, Held] = {}
        self.reported: dict[LeaseKey, int] = {}  # what it reported of late, oldest first: its hash
        self.waiter: asyncio.Future[None] | None = None
        self.connected_at: int | None = None
        self.last_seen_at: int | None = None
        self.polled_at = 0.0  # the loop's time
        self.previous_session_ids: deque[str] = deque(
            maxlen=FORMER_KEPT
        )  # whose name it was before
        self.silence: Silence | None = None  # until it is lost; None: nothing was expected yet
        self.is_broken = False  # its waiting request broke off
        self.revoked: dict[LeaseKey, None] = {}  # what it had, and has said nothing late about yet
        self.unacknowledged = 0  # leases in a row that it did not know of
        self.open_requests = 0  # its requests that are being answered
        self.supports_offers = False
        self.is_connected = False
        self.is_draining = False  # by its own word
        self.drain_requested = False  # a person wants it to leave

    # Transport.

    def start(self, lease: Lease) -> None:
        """Put the lease into the next answer."""
        self.held[lease.key] = Held(lease, None)
        self.wake()

    def stop(self, stop: StopRequest) -> None:
        """Put the stop into every answer until the attempt ends."""
        held = self.held.get(stop.key)
        if held is not None:
            held.stop = stop
            self.wake()

    def wake(self) -> None:
        """Answer the request that waits."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    @property
    def is_listening(self) -> bool:
        """Whether it is lost if it says nothing."""
        return self.silence is not None and self.silence.is_expecting

    def stop_listening(self) -> None:
        """Let it be silent."""
        if self.silence is not None:
            self.silence.cancel()

    # What the next answer holds.

    def has_response(self) -> bool:
        """Whether there is something to say."""
        return any(
            held.given_at is None or (held.stop is not None and not held.is_stop_told)
            for held in self.held.values()
        )

    def take_new(self, now: float) -> list[Lease]:
        """Return the leases that no answer had yet."""
        fresh = [held for held in self.held.values() if held.given_at is None]
        for held in fresh:
            held.given_at = now
        return [held.lease for held in fresh]

    def take_stops(self) -> list[StopRequest]:
        """Return all stops, told before or not."""
        stopped = [held for held in self.held.values() if held.stop is not None]
        for held in stopped:
            held.is_stop_told = True
        return [held.stop for held in stopped if held.stop is not None]

    def note_revoked(self, key: LeaseKey) -> None:
        """Remember that the worker had the attempt once: what it says too late is evidence."""
        self.revoked[key] = None
        if len(self.revoked) > SETTLED_KEPT:
            del self.revoked[next(iter(self.revoked))]

    def note_reported(self, key: LeaseKey, outcome: Outcome) -> None:
        """Remember how the attempt ended: it may be told again, but not otherwise."""
        self.note_revoked(key)
        self.reported[key] = _hash(outcome)
        if len(self.reported) > SETTLED_KEPT:
            del self.reported[next(iter(self.reported))]

    def is_news(self, key: LeaseKey) -> bool:
        """Whether a late result of the attempt is the first: one is enough as evidence."""
        return self.revoked.pop(key, key) is None

    def has_said(self, key: LeaseKey, outcome: Outcome) -> bool:
        """Whether the worker reported this end of the attempt before."""
        return self.reported.get(key) == _hash(outcome)


def _hash(outcome: Outcome) -> int:
    return hash((type(outcome).__name__, outcome))


def is_polling(offer: WorkerSpec) -> WorkerSpec:
    """Return the offer of a worker that gets only what it asks for."""
    return replace(offer, polls=True)


def kind(name: str) -> Literal["remote", "process", "server", "embedded"]:
    """Return where the worker of this name runs; the server's own have names kept for them."""
    if name in (EMBEDDED, EMBEDDED_ALONE):
        return "embedded"
    if name == "local":
        return "server"
    return "process" if name.startswith("process-") else "remote"


def state(worker: Worker, session: Session | None) -> str:
    """Return in a word whether the worker takes work."""
    if session is not None and not session.is_connected:
        return "disconnected"
    if not worker.is_open or (session is not None and session.is_draining):
        return "draining"
    if session is not None and session.drain_requested:
        return "draining"
    return "cordoned" if worker.is_cordoned else "active"


def find_health_problem(worker: Worker, session: Session | None) -> str | None:
    """Return why the worker would not do its work: who has slots must ask for some."""
    if session is None or session.is_draining or session.waiter is not None:
        return None
    if not session.is_connected:
        return "it is not connected"
    if worker.spec.slots <= len(worker.running):
        return None
    unasked_s = asyncio.get_running_loop().time() - session.polled_at
    if unasked_s <= UNASKED_S:
        return None
    return f"it has free slots, but has not asked for work for {unasked_s:.0f} s"


def status(worker: Worker, session: Session | None) -> WorkerStatus:
    """Return the worker as people see it; the server's own have no session."""
    offer = worker.spec
    return WorkerStatus(
        offer.id,
        kind(offer.id),
        state(worker, session),
        offer.slots,
        len(worker.running),
        offer.tasks,
        offer.queues,
        offer.labels,
        offer.resources,
        {name: used for name, used in worker.used.items() if used},
        offer.version,
        session.connected_at if session is not None else None,
        session.last_seen_at if session is not None else None,
        session.session_timeout_s if session is not None else None,
        find_health_problem(worker, session),
    )
