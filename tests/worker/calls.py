"""Hand-made attempts, and the event loops that runners must support."""

from __future__ import annotations

import asyncio
import json
import os
import select
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from schedo.core.leases import AttemptResult, CapturedOutput, Completed, Failed, Lease
from schedo.core.model import PLAIN, Failure, LeaseKey, Options, Trigger
from schedo.tasks.python import TaskRunner
from schedo.tasks.runner import AttemptContext, StopSignal
from schedo.worker.handler_tasks import HandlerTasks

# 2026-11-20T11:04:05.000250Z
SCHEDULED_FOR = 1_795_172_645_000_250
KEY = LeaseKey(job_id=33, attempt=2, epoch=7)  # job 33 is written 0000000000011
JOB = "0000000000011"

both_loops = pytest.mark.parametrize(
    "make_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


def make_context(payload: Any, task: str = "shell", options: Options = PLAIN) -> AttemptContext:
    """Return an attempt with the payload, which is encoded as JSON."""
    lease = Lease(
        key=KEY,
        worker="local",
        task=task,
        queue="default",
        payload=json.dumps(payload).encode(),
        options=options,
        scheduled_for=SCHEDULED_FOR,
        trigger=Trigger.SUBMIT,
        missed_count=0,
        failures=1,
        max_attempts=3,
        started_at=SCHEDULED_FOR + 1_000_000,
    )
    return AttemptContext(lease, StopSignal())


async def run_task(runner: TaskRunner, context: AttemptContext) -> AttemptResult:
    """Run one attempt of an application's task."""
    ended: asyncio.Future[AttemptResult] = asyncio.get_running_loop().create_future()
    begin(runner, context, ended.set_result)
    return await ended


def begin(
    runner: TaskRunner, context: AttemptContext, on_end: Callable[[AttemptResult], object]
) -> None:
    """Begin an attempt of an application's task, `context.handler`, which the loop starts next."""
    HandlerTasks(lambda _, result: on_end(result)).begin(runner, context)


def failure_of(report: AttemptResult) -> Failure:
    assert isinstance(report.outcome, Failed), report
    return report.outcome.failure


def result_of(report: AttemptResult) -> Any:
    assert isinstance(report.outcome, Completed), report
    assert report.outcome.result is not None
    return json.loads(report.outcome.result)


def capture_of(report: AttemptResult, stream: str) -> CapturedOutput:
    (found,) = (capture for capture in report.output if capture.stream == stream)
    return found


def text_of(report: AttemptResult, stream: str = "stdout") -> str:
    return capture_of(report, stream).head.decode()


def is_running(pid: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_gone(pid: int, seconds: float = 10) -> bool:
    """Return True as soon as the process has ended, False if it does not."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


async def end_pass() -> None:
    """Let the loop run its ready callbacks once."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(ended.set_result, None)
    await ended
