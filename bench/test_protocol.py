"""Protocol: decode requests into checked jobs, encode responses, beside orjson alone; frames."""

from __future__ import annotations

from typing import TypeVar

import orjson
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from schedo.core.leases import AttemptResult, Completed, Lease
from schedo.core.model import Job, JobSpec, LeaseKey, Options, Trigger
from schedo.core.states import State
from schedo.protocol.decode import decode_request
from schedo.protocol.frames import (
    Leases,
    Results,
    child_frames,
    encode_frame,
    encode_result,
    frame_results,
    server_frames,
)
from schedo.protocol.jobs import JobRequest, job_fields, render_job
from schedo.protocol.reading import Steps, read_item, split_array

T = TypeVar("T")

NOW = 1_795_172_645_000_000
PLAIN = {"task": "email.send", "payload": {"to": "ada@example.org", "n": 1}}
FULL = {
    **PLAIN,
    "delay": "5m",
    "queue": "mail",
    "priority": 3,
    "retry": {"max_attempts": 3, "initial": "10s"},
    "timeout": "30s",
    "unique": "welcome-1",
    "tags": ["a", "b"],
    "meta": {"user": 1},
}
BODIES = {"plain job": orjson.dumps(PLAIN), "job with every option": orjson.dumps(FULL)}
BATCH = orjson.dumps([PLAIN] * 100)
JOB = Job(
    id=NOW * 256,
    task="email.send",
    payload=orjson.dumps(PLAIN["payload"]),
    state=State.COMPLETED,
    created_at=NOW,
    due_at=NOW,
    attempt=1,
    picked_at=NOW,
    started_at=NOW,
    ended_at=NOW,
    result=b'"sent"',
)


@pytest.mark.parametrize("body", BODIES.values(), ids=list(BODIES))
@pytest.mark.benchmark(group="wire: decode one job")
def test_decode(benchmark: BenchmarkFixture, body: bytes) -> None:
    benchmark(lambda: decode_request(body, JobRequest).to_spec())


@pytest.mark.parametrize("body", BODIES.values(), ids=list(BODIES))
@pytest.mark.benchmark(group="wire: decode one job")
def test_orjson_alone(benchmark: BenchmarkFixture, body: bytes) -> None:
    benchmark(orjson.loads, body)


def _read_batch() -> Steps[list[JobSpec]]:
    items = yield from split_array(BATCH)
    specs = []
    for number, item in enumerate(items, 1):
        asked = yield from read_item(item, number, JobRequest, lambda _: None)
        specs.append(asked.to_spec())
    return specs


def take(steps: Steps[T]) -> T:
    """Run all steps and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


@pytest.mark.benchmark(group="wire: decode a batch of 100 jobs")
def test_decode_batch(benchmark: BenchmarkFixture) -> None:
    def decode() -> list[JobSpec]:
        return take(_read_batch())

    assert len(benchmark(decode)) == 100


@pytest.mark.benchmark(group="wire: decode a batch of 100 jobs")
def test_orjson_alone_batch(benchmark: BenchmarkFixture) -> None:
    benchmark(orjson.loads, BATCH)


@pytest.mark.benchmark(group="wire: encode one job")
def test_encode(benchmark: BenchmarkFixture) -> None:
    benchmark(render_job, JOB)


@pytest.mark.benchmark(group="wire: encode one job")
def test_orjson_alone_encode(benchmark: BenchmarkFixture) -> None:
    benchmark(orjson.dumps, orjson.loads(render_job(JOB)))


@pytest.mark.benchmark(group="wire: encode a page of 100 jobs")
def test_encode_page(benchmark: BenchmarkFixture) -> None:
    benchmark(lambda: orjson.dumps({"items": [job_fields(JOB) for _ in range(100)]}))


KEYS = [LeaseKey(NOW * 256 + n, 1, 1) for n in range(100)]
LEASES = [
    Lease(key, "process-1", "email.send", "default", JOB.payload, Options(), NOW, Trigger.SUBMIT, 0)
    for key in KEYS
]


@pytest.mark.benchmark(group="frames: to a child and back")
def test_lease_100_jobs(benchmark: BenchmarkFixture) -> None:
    """Encode and decode 100 leases in one frame."""

    def lease() -> int:
        (frame,) = server_frames().feed(encode_frame(Leases(LEASES, 12.5)))
        assert isinstance(frame, Leases)
        return len(frame.leases)

    assert benchmark(lease) == 100


@pytest.mark.benchmark(group="frames: to a child and back")
def test_report_100_jobs(benchmark: BenchmarkFixture) -> None:
    """Encode 100 results, and decode the frame that they share."""
    results = [AttemptResult(key, Completed()) for key in KEYS]

    def report() -> int:
        encoded = list(map(encode_result, results))
        (frame,) = child_frames().feed(frame_results(len(encoded), b"".join(encoded)))
        assert isinstance(frame, Results)
        return len(frame.results)

    assert benchmark(report) == 100
