"""Offers, which a worker accepts or rejects, and gangs, whose jobs start together or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from schedo.core.leases import Lease
from schedo.core.model import LeaseKey

REJECTED = LeaseKey(0, 0, 0)  # the key of an offer between two workers


class Gang:
    """Jobs that start together or not at all: none begins before every one is accepted."""

    __slots__ = ("decided", "deferred", "is_failed", "job_ids")

    def __init__(self, job_ids: Collection[int], decided: asyncio.Future[None]) -> None:
        self.job_ids = job_ids
        self.deferred: dict[int, Lease] = {}  # by job id, for workers without offers
        self.decided = decided
        self.is_failed = False


class Offer:
    """An attempt that its worker must accept or reject."""

    __slots__ = ("accepted", "gang", "is_accepted", "key", "rejected_by", "timer", "worker")

    def __init__(
        self, key: LeaseKey, worker: str, accepted: asyncio.Future[None], gang: Gang | None
    ) -> None:
        self.key = key
        self.worker = worker
        self.accepted = accepted
        self.gang = gang
        self.is_accepted = False  # but others of its gang are not yet
        self.rejected_by: set[str] = set()
        self.timer: asyncio.TimerHandle | None = None

    def stop_timer(self) -> None:
        """Let the offer stay open without a time limit."""
        if self.timer is not None:
            self.timer.cancel()

    def end(self) -> None:
        """Close the offer and wake the callers that wait for its end."""
        self.stop_timer()
        if not self.accepted.done():
            self.accepted.set_result(None)
