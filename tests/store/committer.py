"""A program that commits one job after the other and prints each id when it is durable.

Run as `python -m tests.store.committer PATH`; it runs until it is killed.
"""

from __future__ import annotations

import asyncio
import sys

from schedo.core.changes import Changes
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job


async def main(path: str) -> None:
    store = SqliteStore(path)
    opening = await store.open()
    for job_id in range(opening.last_id + 1, opening.last_id + 100_000):
        await store.commit(Changes(jobs={job_id: make_job(id=job_id, payload=b"x" * 500)}))
        print(job_id, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
