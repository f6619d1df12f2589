"""The pool of job records: reuse a record, beside making a new one."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from schedo.core.model import Job
from schedo.core.pool import JobPool

pytestmark = pytest.mark.benchmark(group="pool: a job's record")


def test_recycled(benchmark: BenchmarkFixture) -> None:
    pool = JobPool()
    pool.recycle(Job())

    benchmark(lambda: pool.recycle(pool.take()))


def test_made_new(benchmark: BenchmarkFixture) -> None:
    benchmark(Job)
