"""The job that a handler can read, and the limits of a snooze."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from schedo.core.model import Options
from schedo.tasks.arguments import Arguments
from schedo.tasks.current_job import Snooze, current_job
from schedo.tasks.python import TaskRunner
from schedo.tasks.registry import TaskSpec
from schedo.tasks.threads import HandlerThreads
from schedo.testing import job_context
from tests.worker.calls import JOB, make_context, result_of, run_task


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_a_handler_can_read_the_job_it_runs(is_async: bool) -> None:
    def look() -> dict[str, Any]:
        job = current_job()
        assert job.scheduled_for == datetime(2026, 11, 20, 11, 4, 5, 250, tzinfo=UTC)
        assert job.stop_reason is None
        assert job.started_at == datetime(2026, 11, 20, 11, 4, 6, 250, tzinfo=UTC)
        assert job.timeout == timedelta(seconds=90)
        assert job.deadline == job.started_at + job.timeout
        return {
            "id": job.id,
            "task": job.task,
            "queue": job.queue,
            "payload": job.payload,
            "attempt": job.attempt,
            "failures": job.failures,
            "max_attempts": job.max_attempts,
            "last": job.is_last_attempt,
            "schedule": job.schedule,
            "worker": job.worker,
            "trigger": job.trigger,
            "missed": job.missed_count,
            "tags": job.tags,
            "meta": job.meta,
            "trace": job.traceparent,
            "cancelled": job.is_cancelled,
        }

    async def look_async() -> dict[str, Any]:
        return look()

    handler = look_async if is_async else look
    options = Options(
        tags=("a",),
        meta={"b": 1},
        traceparent="00-x",
        timeout_us=90_000_000,
        schedule="nightly",
    )
    with HandlerThreads(1) as pool:
        runner = TaskRunner(TaskSpec("task", handler, Arguments("task", handler)), pool)
        report = await run_task(runner, make_context({}, "task", options))

    assert result_of(report) == {
        "id": JOB,
        "task": "task",
        "queue": "default",
        "payload": {},
        "attempt": 2,
        "failures": 1,
        "max_attempts": 3,
        "last": False,
        "schedule": "nightly",
        "worker": "local",
        "trigger": "submit",
        "missed": 0,
        "tags": ["a"],
        "meta": {"b": 1},
        "trace": "00-x",
        "cancelled": False,
    }


def test_a_job_without_a_timeout_has_no_deadline() -> None:
    with job_context() as job:
        assert (job.timeout, job.deadline) == (None, None)


def test_the_last_attempt_is_the_one_whose_failure_is_final() -> None:
    with job_context(attempt=7, failures=4, max_attempts=5) as job:
        assert job.is_last_attempt
    with job_context(attempt=7, failures=3, max_attempts=5) as job:
        assert not job.is_last_attempt


async def test_the_current_job_is_named_by_id_task_and_attempt() -> None:
    async def look() -> str:
        return repr(current_job())

    with HandlerThreads(1) as pool:
        runner = TaskRunner(TaskSpec("task", look, Arguments("task", look)), pool)
        report = await run_task(runner, make_context(None, "task"))

    assert result_of(report) == f"<CurrentJob {JOB} task attempt 2>"


def test_outside_of_a_handler_there_is_no_current_job() -> None:
    with pytest.raises(RuntimeError, match="only inside a task"):
        current_job()


def test_a_snooze_accepts_every_form_of_a_duration() -> None:
    delays = [Snooze("90s"), Snooze(1.5), Snooze(timedelta(minutes=1))]

    assert [snooze.delay_us for snooze in delays] == [90_000_000, 1_500_000, 60_000_000]
    with pytest.raises(ValueError, match="is not a duration"):
        Snooze("soon")
