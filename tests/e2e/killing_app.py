"""An application with a handler that kills its own process.

`python -m tests.e2e.killing_app DATABASE WHAT...` takes tasks, of which it submits a job each, and
ids of jobs. It prints the id of each new job, waits until all have ended, and prints how.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from schedo import Schedo

app = Schedo(sys.argv[1])


@app.task
async def kill() -> None:
    """End the process at once."""
    os._exit(3)


@app.task
async def work() -> None:
    """Run for a short time."""
    await asyncio.sleep(0.3)


async def main() -> None:
    tasks = {"kill": kill, "work": work}
    async with app:
        ids = []
        for what in sys.argv[2:]:
            if what in tasks:
                what = (await tasks[what].enqueue()).id
                os.write(1, f"{what}\n".encode())  # unbuffered, because the process may be killed
            ids.append(what)
        ended = [await app.find_backend().wait(job_id, 10) for job_id in ids]
        print(json.dumps([(job["state"], job["losses"]) for job in ended]))


if __name__ == "__main__":
    asyncio.run(main())
