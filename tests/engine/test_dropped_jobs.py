"""Memory holds few of the jobs that are not kept, and not for long."""

from __future__ import annotations

import pytest

from schedo.core.changes import Output
from schedo.core.leases import CapturedOutput
from schedo.core.model import Job
from schedo.core.states import State
from schedo.engine.dropped_jobs import HELD_BYTES_MAX, HELD_JOBS_MAX, HELD_S, DroppedJobs
from schedo.errors import NotFound
from schedo.store.base import OutputPiece, OutputSize
from tests.factories import make_job


def ended(job_id: int, result: bytes = b"1") -> Job:
    return make_job(id=job_id, state=State.COMPLETED, result=result, kept_until=0)


def held(dropped: DroppedJobs, *job_ids: int) -> list[int]:
    """Return those of the jobs that are held."""
    found = []
    for job_id in job_ids:
        try:
            found.append(dropped.find(job_id).id)
        except NotFound:
            continue
    return found


def test_a_job_is_held_for_a_time() -> None:
    dropped = DroppedJobs()
    dropped.add([ended(1)], [], 0.0)
    dropped.add([ended(2)], [], 1.0)

    dropped.evict(HELD_S - 0.1)
    assert held(dropped, 1, 2) == [1, 2]
    dropped.evict(HELD_S)
    assert held(dropped, 1, 2) == [2]


def test_the_latest_jobs_are_held() -> None:
    dropped = DroppedJobs()
    dropped.add([ended(1), ended(2)], [], 0.0)
    dropped.add([ended(n) for n in range(3, HELD_JOBS_MAX + 2)], [], 0.0)
    assert held(dropped, 1, 2, 3) == [2, 3]

    dropped.add([ended(n) for n in range(10_000, 10_001 + HELD_JOBS_MAX)], [], 0.0)
    assert held(dropped, 3, 10_000, 10_001) == [10_001]


def test_few_bytes_are_held() -> None:
    dropped = DroppedJobs()
    large = b"x" * (HELD_BYTES_MAX // 2)
    dropped.add([ended(1, large)], [], 0.0)
    dropped.add([ended(2)], [Output(2, 1, CapturedOutput("stdout", large, b"", 9))], 0.0)
    assert held(dropped, 1, 2) == [2]

    dropped.add([ended(3, large * 2)], [], 0.0)
    assert held(dropped, 1, 2, 3) == []


async def test_the_output_is_read_as_from_a_store() -> None:
    dropped = DroppedJobs()
    outputs = [
        Output(1, 2, CapturedOutput("stdout", b"hello", b"world", 99)),
        Output(7, 1, CapturedOutput("stdout", b"of another", b"", 10)),
        Output(1, 2, CapturedOutput("stderr", b"oops", b"", 4)),
    ]
    dropped.add([ended(1)], outputs, 0.0)

    assert await dropped.list_output_sizes(1) == [
        OutputSize(2, "stdout", 5, 5, 99),
        OutputSize(2, "stderr", 4, 0, 4),
    ]
    assert await dropped.read_output(1, OutputPiece(2, "stdout", "tail", 1, 3)) == b"orl"
    assert await dropped.read_output(1, OutputPiece(1, "stdout", "tail", 0, 9)) == b""
    assert await dropped.list_output_sizes(7) == []


def test_each_caller_gets_a_copy() -> None:
    dropped = DroppedJobs()
    dropped.add([ended(1)], [], 0.0)

    dropped.find(1).result = None

    assert dropped.find(1).result == b"1"
    with pytest.raises(NotFound, match="keep"):
        dropped.find(2)
