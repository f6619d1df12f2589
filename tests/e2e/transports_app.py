"""The application of test_transports.py, with a handler for each outcome."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

from schedo import Discard, Schedo, Snooze, current_job, report_progress

app = Schedo()


@app.task
async def add(a: int, b: int) -> int:
    return a + b


@app.task
def add_plainly(a: int, b: int) -> int:
    return a + b


@app.task
async def echo(text: str) -> str:
    return text


@app.task(retries=2, timeout="1h")
async def describe_attempt(note: str) -> dict[str, object]:
    job = current_job()
    deadline = job.deadline
    assert deadline is not None
    assert job.started_at <= datetime.now(UTC) < deadline == job.started_at + timedelta(hours=1)
    return {
        "id": job.id,
        "task": job.task,
        "queue": job.queue,
        "payload": job.payload,
        "attempt": job.attempt,
        "failures": job.failures,
        "max_attempts": job.max_attempts,
        "schedule": job.schedule,
        "has_worker": bool(job.worker),
    }


@app.task(retries=0)
async def fail() -> None:
    raise ValueError("no such order")


@app.task
async def discard() -> None:
    raise Discard("nobody wants it")


@app.task
async def snooze_once() -> str:
    if current_job().attempt == 1:
        raise Snooze("1ms")
    return "awake"


@app.task
async def unprintable() -> object:
    return object()


@app.task
async def wait_for_stop(pipe: str) -> None:
    """Signal the start, then wait for a stop."""
    await asyncio.to_thread(Path(pipe).write_text, "running")
    await asyncio.Event().wait()


@app.task
async def show(pipe: str) -> str:
    """Report progress, then wait for the test."""
    report_progress(40, "page 4 of 10", log="it has begun")
    report_progress(log="and goes on")
    return await asyncio.to_thread(Path(pipe).read_text)


@app.task
def wait_for_stop_in_thread(pipe: str) -> None:
    """Signal the start, then poll for a stop."""
    Path(pipe).write_text("running")
    while not current_job().is_cancelled:
        pass
