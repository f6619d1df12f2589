"""Commits of many jobs, which bulk statements write."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from schedo.core.loads import LoadJob
from schedo.core.model import Failure, Job, Queue
from schedo.core.states import State
from schedo.store.sqlite.bulk import COUNTS
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job
from tests.store.steps import of_jobs

STARTED = {"picked_at": 5, "started_at": 6, "attempt": 1, "epoch": 1, "worker": "w"}
# By what is NULL in its row.
KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"state": State.RUNNING, **STARTED},
    {"state": State.COMPLETED, "ended_at": 7, **STARTED},
    {"state": State.COMPLETED, "ended_at": 7, "result": b"[1]", **STARTED},
    {"state": State.FAILED, "ended_at": 7, "failure": Failure("Error", "no"), **STARTED},
    {"expires_at": 90, "expires_elapsed": True, "cancel_requested_at": 8},
)
MANY = 2 * sum(COUNTS) + 1  # of each kind


def make_jobs() -> list[Job]:
    jobs = [make_job(id=n + 1, **KINDS[n % len(KINDS)]) for n in range(MANY * len(KINDS))]
    for job in jobs:
        job.unique_key = None if job.id % 5 else f"key {job.id}"
    return jobs


async def read(path: Path, *commits: list[Job]) -> list[Job | None]:
    """Return the jobs that a store has after the commits."""
    store = SqliteStore(path)
    await store.open()
    for jobs in commits:
        changes = of_jobs(*jobs)
        changes.queues["a"] = Queue("a")  # so that the tables are written at once
        await store.commit(changes)
    found = [await store.load(LoadJob(job.id)) for job in commits[0]]
    await store.close()
    return found


async def test_bulk_inserts_write_every_value(path: Path) -> None:
    jobs = make_jobs()

    assert await read(path, jobs) == [dataclasses.replace(job, is_new=False) for job in jobs]


@pytest.mark.parametrize("shift", range(1, len(KINDS)))
async def test_bulk_updates_write_every_value(path: Path, shift: int) -> None:
    jobs = make_jobs()
    changed = [
        dataclasses.replace(job, is_new=False, **KINDS[(at + shift) % len(KINDS)])
        for at, job in enumerate(jobs)
    ]

    assert await read(path, jobs, changed) == changed
