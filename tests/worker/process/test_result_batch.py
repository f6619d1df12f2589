"""Results of one pass of the loop are sent together, but none waits for a handler that blocks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from schedo.core.leases import AttemptResult, Completed
from schedo.core.model import LeaseKey
from schedo.protocol.frames import Results, child_frames
from schedo.worker.process.child_memory import make_memory
from schedo.worker.process.result_batch import NEW_S, ResultBatch
from schedo.worker.process.staged_results import BYTES, StagedResults
from tests.worker.calls import end_pass


class Sent:
    """A batch, and the job ids in each frame that it has sent."""

    def __init__(self, staged: StagedResults) -> None:
        self.staged = staged
        self.frames: list[list[int]] = []
        self.batch = ResultBatch(staged, self.send)

    def send(self, frame: bytes) -> None:
        (results,) = child_frames().feed(frame)
        assert isinstance(results, Results)
        self.frames.append([result.key.job_id for result in results.results])

    def add(self, job_id: int, value: bytes = b"null") -> None:
        self.batch.add(AttemptResult(LeaseKey(job_id, 1, 1), Completed(value)))


@pytest.fixture
def staged() -> Iterator[StagedResults]:
    descriptor = make_memory()
    staged = StagedResults(descriptor)
    os.close(descriptor)
    yield staged
    staged.close()


async def test_results_of_one_pass_are_sent_together_at_its_end(staged: StagedResults) -> None:
    sent = Sent(staged)
    sent.add(1)
    sent.add(2)
    before = list(sent.frames)

    await end_pass()
    sent.add(3)
    await end_pass()

    assert before == []
    assert sent.frames == [[1, 2], [3]]
    assert staged.read() == []


async def test_results_that_are_not_sent_are_staged(staged: StagedResults) -> None:
    sent = Sent(staged)

    sent.add(1)
    sent.add(2)

    assert [result.key.job_id for result in staged.read()] == [1, 2]


async def test_old_results_are_sent_before_the_next_handler_begins(staged: StagedResults) -> None:
    sent = Sent(staged)
    sent.add(1)
    now = time.monotonic()

    sent.batch.flush_old(now + NEW_S / 2 - 1)
    before = list(sent.frames)
    sent.batch.flush_old(now + 2 * NEW_S)

    assert (before, sent.frames) == ([], [[1]])


async def test_results_are_sent_early_when_their_memory_is_full(staged: StagedResults) -> None:
    sent = Sent(staged)

    for number in (1, 2, 3):
        sent.add(number, b"1" * (BYTES // 3))
    await end_pass()

    assert sent.frames == [[1, 2], [3]]


async def test_a_result_larger_than_the_memory_goes_alone(staged: StagedResults) -> None:
    sent = Sent(staged)

    sent.add(1)
    sent.add(2, b"1" * BYTES)
    sent.add(3)
    await end_pass()

    assert sent.frames == [[1], [2], [3]]
