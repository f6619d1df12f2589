"""An application whose tasks run through an upgrade."""

import asyncio
import os

from schedo import Schedo

app = Schedo()


@app.task
async def linger(seconds: float) -> int:
    """Return the pid of the server that runs this."""
    await asyncio.sleep(seconds)
    return os.getppid()


@app.task
async def submit_all_along(seconds: float) -> list[str]:
    """Submit jobs without a pause, also while the server is replaced; return their ids."""
    until = asyncio.get_running_loop().time() + seconds
    made = []
    while asyncio.get_running_loop().time() < until:
        job = await linger.enqueue(0)
        made.append(job.id)
        await asyncio.sleep(0.005)
    return made


@app.task
async def call_another(seconds: float) -> int:
    """Submit a job that the new server will run, wait for its end, and return its result."""
    job = await linger.options(delay=seconds).enqueue(0)
    return await job.result(timeout=30)
