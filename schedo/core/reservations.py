"""Reservations: slots that are held for the client that has the nonce.

A reserved slot is held under a lease key with a negative job id, which no job has. Reservations end
with the scheduler: a recovery drops them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hmac import compare_digest
from typing import NamedTuple

from schedo.core.model import LeaseKey
from schedo.core.requirements import Requirements
from schedo.core.timers import Timers
from schedo.core.worker_pool import Worker, WorkerPool
from schedo.errors import NoReservation


class ReservedSlot(NamedTuple):
    """A slot that is held for a reservation, with the requirements of its jobs."""

    worker: str
    key: LeaseKey
    requirements: Requirements | None


class _Reservation(NamedTuple):
    number: int
    id: str
    nonce: str
    slots: Sequence[ReservedSlot]


class Reservations:
    """The open reservations. Ids and nonces come from the caller."""

    def __init__(self, workers: WorkerPool) -> None:
        self._workers = workers
        self._by_id: dict[str, _Reservation] = {}
        self._by_number: dict[int, _Reservation] = {}
        self.deadlines = Timers()  # by the numbers of the reservations
        self._made = 0
        self._slots = 0

    def make(
        self,
        id_: str,
        nonce: str,
        workers: Iterable[Worker],
        requirements: Requirements | None,
        until: int,
    ) -> None:
        """Hold a slot of each of the workers, which have one free, until the instant."""
        slots = []
        for worker in workers:
            self._slots += 1
            key = LeaseKey(-self._slots, 0, 0)
            worker.hold(key, requirements.resources if requirements is not None else ())
            slots.append(ReservedSlot(worker.spec.id, key, requirements))
        self._made += 1
        self._by_id[id_] = reservation = _Reservation(self._made, id_, nonce, slots)
        self._by_number[self._made] = reservation
        self.deadlines.arm(self._made, until)

    def find(self, id_: str, nonce: str) -> Sequence[ReservedSlot]:
        """Return the slots of an open reservation; raise NoReservation."""
        reservation = self._by_id.get(id_)
        if reservation is None:
            raise NoReservation(f"there is no reservation {id_[:40]!r}, or its time is up")
        if not compare_digest(reservation.nonce.encode(), nonce.encode()):
            raise NoReservation("the nonce is not the one of this reservation")
        return reservation.slots

    def end(self, id_: str) -> None:
        """Free the slots of an open reservation; slots of workers that are gone are ignored."""
        reservation = self._by_id.pop(id_)
        del self._by_number[reservation.number]
        self.deadlines.cancel(reservation.number)
        for slot in reservation.slots:
            self._workers.release(slot.worker, slot.key)

    def tick(self, now: int, limit: int) -> None:
        """End the reservations whose time is up."""
        for _, number in self.deadlines.pop_due(now, limit):
            self.end(self._by_number[number].id)

    def next_at(self) -> int | None:
        """Return the next instant at which a reservation ends, or None."""
        first = self.deadlines.first()
        return first[0] if first is not None else None

    def shift(self, delta_us: int) -> None:
        """Shift the deadlines after a clock change, because they count elapsed time."""
        self.deadlines.shift(delta_us)
