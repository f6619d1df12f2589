"""Leases of one pass of the loop are sent together, in order, in frames of bounded size."""

from __future__ import annotations

from schedo.core.leases import Lease
from schedo.core.model import PLAIN, LeaseKey, Trigger
from schedo.worker.process.lease_batch import LeaseBatch
from tests.worker.calls import end_pass

HALF = 500_000


class Frames:
    """A batch, and the job ids in each frame that it has sent."""

    def __init__(self) -> None:
        self.sent: list[list[int]] = []
        self.batch = LeaseBatch(self.send)

    def send(self, leases: list[Lease]) -> None:
        self.sent.append([lease.key.job_id for lease in leases])

    def add(self, job_id: int, payload_bytes: int = 1) -> None:
        key, payload = LeaseKey(job_id, 1, 1), b"x" * payload_bytes
        self.batch.add(Lease(key, "w", "work", "default", payload, PLAIN, 0, Trigger.SUBMIT, 0))


async def test_leases_of_one_pass_are_sent_together_at_its_end() -> None:
    frames = Frames()
    frames.add(1)
    frames.add(2)
    before = list(frames.sent)

    await end_pass()
    frames.add(3)
    await end_pass()

    assert before == []
    assert frames.sent == [[1, 2], [3]]


async def test_leases_are_sent_early_before_they_are_too_large_together() -> None:
    frames = Frames()

    frames.add(1, HALF)
    frames.add(2, HALF)
    frames.add(3, HALF)
    await end_pass()

    assert frames.sent == [[1, 2], [3]]


async def test_a_lease_larger_than_a_batch_goes_alone() -> None:
    frames = Frames()

    frames.add(1)
    frames.add(2, 3 * HALF)
    frames.add(3)
    await end_pass()

    assert frames.sent == [[1], [2], [3]]


async def test_leases_that_were_flushed_are_not_sent_again() -> None:
    frames = Frames()
    frames.add(1)

    frames.batch.flush()
    frames.batch.flush()
    await end_pass()

    assert frames.sent == [[1]]
