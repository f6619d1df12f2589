"""The job context for calling a task directly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from schedo import current_job
from schedo.errors import Invalid
from schedo.testing import job_context
from tests.testing.shop import charge


async def test_a_task_that_is_called_directly_has_a_job() -> None:
    with job_context(attempt=2) as job:
        assert await charge(2) == 2

    assert [(each.percent, each.message) for each in job.progress] == [(50.0, "asking the bank")]


def test_the_job_has_the_given_properties() -> None:
    at = datetime(2026, 3, 28, 8, tzinfo=UTC)
    with job_context(
        "charge", queue="q", scheduled_for=at, trigger="catchup", tags=["a"], meta={"b": 1}
    ):
        job = current_job()

    assert (job.task, job.queue, job.trigger, job.tags) == ("charge", "q", "catchup", ("a",))
    assert (job.scheduled_for, job.meta, job.attempt) == (at, {"b": 1}, 1)
    assert job.id == "0000000000001"


def test_a_test_can_stand_at_any_point_of_a_job() -> None:
    at = datetime(2026, 3, 28, 8, tzinfo=UTC)
    with job_context(
        payload={"day": at},
        attempt=5,
        max_attempts=5,
        started_at=at,
        timeout="10m",
        schedule="nightly",
        worker="gpu-1",
    ) as job:
        assert job.payload == {"day": "2026-03-28T08:00:00Z"}
        assert (job.failures, job.max_attempts, job.is_last_attempt) == (4, 5, True)
        assert job.deadline == at + timedelta(minutes=10)
        assert (job.schedule, job.trigger, job.worker) == ("nightly", "schedule", "gpu-1")


def test_a_stop_is_seen_by_the_task() -> None:
    with job_context() as job:
        before = current_job().is_cancelled
        job.stop()

        assert (before, current_job().is_cancelled) == (False, True)


def test_outside_of_the_context_there_is_no_job() -> None:
    with job_context(), job_context("inner"):
        pass

    with pytest.raises(RuntimeError, match="only inside a task"):
        current_job()


def test_a_bad_instant_is_refused() -> None:
    with pytest.raises(Invalid, match="/scheduled_for"), job_context(scheduled_for="noon"):
        pass
