"""Offers: the life of an invoked attempt until its worker has accepted it.

The jobs of an invocation are offered together. If there are several, they are a gang: none begins
before every one is accepted.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from schedo.core.leases import Lease
from schedo.core.model import Job, LeaseKey


class OfferState(StrEnum):
    """How far the worker's decision is."""

    PLANNED = "planned"  # the worker does not have the lease: its start is not durable yet
    OPEN = "open"  # the worker must accept or reject it in time
    ACCEPTED = "accepted"  # the others of its gang are not accepted yet
    ENDED = "ended"  # it has begun, or its attempt has ended


_PLANNED, _OPEN, _ACCEPTED, _ENDED = OfferState
FOLLOWERS = {
    _PLANNED: {_PLANNED, _OPEN, _ACCEPTED, _ENDED},
    _OPEN: {_PLANNED, _OPEN, _ACCEPTED, _ENDED},
    _ACCEPTED: {_PLANNED, _ENDED},  # planned: its worker has left before the gang could begin
    _ENDED: set[OfferState](),
}


class Offer:
    """An attempt that its worker must accept; a rejected one goes to the next worker."""

    __slots__ = ("invocation", "key", "rejected_by", "state", "worker")

    def __init__(self, invocation: Invocation, key: LeaseKey, worker: str) -> None:
        self.invocation = invocation
        self.key = key
        self.worker = worker
        self.state = _PLANNED
        self.rejected_by: set[str] = set()

    def move(self, state: OfferState) -> None:
        """Change the state, as far as FOLLOWERS allows it."""
        assert state in FOLLOWERS[self.state], (self.state, state)
        self.state = state

    def reassign(self, key: LeaseKey, worker: str) -> None:
        """Offer the job's next attempt to another worker."""
        self.key, self.worker = key, worker
        self.move(_PLANNED)


class Invocation:
    """The jobs that one request invokes, and their offers."""

    __slots__ = ("deferred", "id", "is_decided", "is_gang", "offers", "unstarted")

    def __init__(self, id_: str, jobs: Iterable[Job]) -> None:
        self.id = id_
        self.offers = {job.id: Offer(self, job.key, job.worker or "") for job in jobs}
        self.is_gang = len(self.offers) > 1
        # Leases, by job id, of workers that begin each lease at once: they get them when the
        # gang begins.
        self.deferred: dict[int, Lease] = {}
        self.is_decided = False  # whether its jobs begin or not
        self.unstarted: set[int] = set()  # the jobs that no worker has begun, and none will

    def count_rejections(self) -> int:
        """Return how many workers have rejected an offer."""
        return len(set[str]().union(*(offer.rejected_by for offer in self.offers.values())))
