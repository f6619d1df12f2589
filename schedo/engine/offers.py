"""Bids: a worker is asked whether it takes an attempt right now. Groups: all of them, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from schedo.core.leases import Lease
from schedo.core.model import LeaseKey

REFUSED = LeaseKey(0, 0, 0)  # in place of the key of a bid that is being passed on


class Gang:
    """Jobs that run together or not at all: none begins before there is a yes for each."""

    __slots__ = ("deferred", "is_failed", "job_ids", "wait_decided")

    def __init__(self, job_ids: Collection[int], decided: asyncio.Future[None]) -> None:
        self.job_ids = job_ids
        self.deferred: dict[int, Lease] = {}  # by job id, for workers that are not asked
        self.wait_decided = decided
        self.is_failed = False


class Offer:
    """An attempt that its worker has yet to take."""

    __slots__ = ("accepted", "group", "is_taken", "key", "refused_by", "timer", "worker")

    def __init__(
        self, key: LeaseKey, worker: str, accepted: asyncio.Future[None], group: Gang | None
    ) -> None:
        self.key = key
        self.worker = worker
        self.accepted = accepted
        self.group = group
        self.is_taken = False  # and the others of its group are not yet
        self.refused_by: set[str] = set()
        self.timer: asyncio.TimerHandle | None = None

    def stop_timer(self) -> None:
        """Give the worker all the time it wants."""
        if self.timer is not None:
            self.timer.cancel()

    def end(self) -> None:
        """Wait for no answer any more."""
        self.stop_timer()
        if not self.accepted.done():
            self.accepted.set_result(None)
