"""An application whose tasks run until a file exists, through an upgrade."""

import asyncio
import os

from schedo import Schedo

app = Schedo()


async def exists(path: str) -> bool:
    await asyncio.sleep(0.01)
    return await asyncio.to_thread(os.path.exists, path)


@app.task
async def linger(until: str) -> int:
    """Return the pid of the server that runs this."""
    while not await exists(until):
        pass
    return os.getppid()


@app.task
def tell() -> int:
    """Return the pid of the server that runs this."""
    return os.getppid()


@app.task
async def submit_all_along(until: str) -> list[str]:
    """Submit one job after the other until the file `until` exists; return the ids of the jobs."""
    made = []
    while not await exists(until):
        job = await tell.enqueue()
        made.append(job.id)
    return made


@app.task
async def call_another(until: str) -> int:
    """Wait for a job that ends under the new server; return what it has returned."""
    job = await linger.enqueue(until)
    return await job.result(timeout=30)
