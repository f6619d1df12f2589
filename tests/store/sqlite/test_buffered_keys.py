"""Unique keys of jobs in the write buffer, compared with a model of a store."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from schedo.core.loads import LoadUniqueHolders
from schedo.core.model import Job
from schedo.errors import StoreError
from schedo.store.base import Store
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job
from tests.store.files import Crashed, in_table
from tests.store.model import ModelStore
from tests.store.steps import of_jobs

KEYS = (None, "a", "b", "c")


async def accepts(store: Store, jobs: list[Job]) -> bool:
    """Commit copies of the jobs; return whether the store accepts them."""
    try:
        await store.commit(of_jobs(*(job.copy() for job in jobs)))
    except StoreError:
        return False
    return True


async def holders(store: Store) -> dict[str, int]:
    found = await store.load(LoadUniqueHolders(("a", "b", "c")))
    return {key: job.id for key, job in found.items()}


class Sides:
    """A store in a file and a model, which get the same commits."""

    def __init__(self, path: Path, random: Random) -> None:
        self.store = SqliteStore(path)
        self.model: Any = ModelStore()  # it cannot be backed up
        self.random = random
        self.jobs: dict[int, Job] = {}
        self.crashes = 0

    async def commit(self) -> None:
        """Commit new jobs and changes of known ones; most are what the core may commit."""
        random = self.random
        known = random.sample([*self.jobs.values()], min(len(self.jobs), random.randrange(4)))
        changed = [job.copy() for job in known]
        for job in changed:
            job.attempt += 1
            if random.random() < 0.5:
                job.unique_key = random.choice(KEYS) if random.random() < 0.1 else None
        first = len(self.jobs) + 1
        count = random.randrange(3)
        new = [make_job(id=first + n, unique_key=random.choice(KEYS)) for n in range(count)]
        accepted = await accepts(self.model, [*changed, *new])
        assert await accepts(self.store, [*changed, *new]) is accepted
        for job in (*changed, *new) if accepted else ():
            job.is_new = False
            self.jobs[job.id] = job

    async def disturb(self) -> None:
        """Flush a part of the buffer, look up the keys, or crash and recover."""
        writer, buffer = self.store._writer, self.store._buffer
        assert writer is not None
        chance = self.random.random()
        if chance < 0.2:
            await writer.run(buffer.flush_step, 0)
        elif chance < 0.4:
            await writer.run(lambda c: buffer._flush(c, min(1, len(buffer._entries))))
        elif chance < 0.5:
            assert await holders(self.store) == await holders(self.model)
        elif chance < 0.55:
            assert self.store.path is not None
            self.crashes += 1
            crashed = Crashed(Path(self.store.path), f"crash {self.crashes}")
            await self.store.close()
            self.store = SqliteStore(crashed.path)
            await self.store.open()


@pytest.mark.parametrize("seed", range(25))
async def test_a_store_accepts_the_keys_that_a_model_accepts(path: Path, seed: int) -> None:
    sides = Sides(path, Random(seed))
    await sides.store.open()
    await sides.model.open()
    for _ in range(60):
        await sides.commit()
        await sides.disturb()

    assert await holders(sides.store) == await holders(sides.model)
    for job in sides.jobs.values():
        assert await sides.store.get_job(job.id) == job
    await sides.store.close()


async def test_a_released_key_passes_to_a_new_job_within_the_buffer(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    first = make_job(id=1, unique_key="a")
    await store.commit(of_jobs(first))
    first.is_new, first.unique_key = False, None

    await store.commit(of_jobs(first, make_job(id=2, unique_key="a")))

    assert await in_table(store) == {}
    assert await holders(store) == {"a": 2}
    await store.close()
