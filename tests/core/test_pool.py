"""The pool reuses records and keeps a bounded number of them."""

from __future__ import annotations

from schedo.core import pool
from schedo.core.model import PLAIN, Failure, Job, Options
from schedo.core.pool import JobPool
from schedo.core.states import State


def test_a_recycled_record_has_the_values_that_it_is_taken_with_and_no_others() -> None:
    records = JobPool()
    used = Job(id=7, task="t", state=State.FAILED, unique_key="k", is_new=True, payload=b"1")

    records.recycle(used)
    again = records.take(8, "other")

    assert again is used
    assert again == Job(id=8, task="other")
    assert len(records) == 0


def test_a_recycled_record_keeps_nothing_large() -> None:
    failure, options = Failure("Error", "no"), Options(tags=("a",))
    used = Job(payload=b"1", result=b"2", failure=failure, options=options)

    JobPool().recycle(used)

    assert (used.payload, used.result, used.failure, used.options) == (None, None, None, PLAIN)


def test_an_empty_pool_makes_a_new_record() -> None:
    records = JobPool()

    assert records.take() is not records.take()


def test_the_pool_keeps_no_more_records_than_its_limit() -> None:
    records = JobPool()

    for _ in range(pool._KEPT_MAX + 1):
        records.recycle(Job())

    assert len(records) == 1_024
