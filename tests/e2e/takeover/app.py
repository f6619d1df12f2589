"""The application whose tasks write down when they start and end, in the file TAKEOVER_RUNS."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress

from schedo import Schedo, current_job
from schedo.tasks.current_job import CurrentJob

app = Schedo()


def _write(what: str, token: str, job: CurrentJob) -> None:
    epoch = job._lease.key.epoch  # not public: programs need only the attempt
    name = os.environ["TAKEOVER_PLACE"]
    at = f"{job.scheduled_for:%Y-%m-%dT%H:%M:%S.%fZ}"
    line = f"{what} {token} {job.id} {job.attempt} {epoch} {at} {time.monotonic():.6f} {name}\n"
    descriptor = os.open(os.environ["TAKEOVER_RUNS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


@app.task(retries=20)
async def mark(token: str, ms: int = 0) -> str:
    """Write a line at the start and one at the end; return the token."""
    job = current_job()
    _write("start", token, job)
    if ms:
        await asyncio.sleep(ms / 1000)
    _write("end", token, job)
    return token


with suppress(KeyError):  # a child process; the remote workers have a place of their own
    os.environ.setdefault("TAKEOVER_PLACE", "child")
