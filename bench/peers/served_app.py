"""The application of `schedo_served`: ten no-op tasks, task0 to task9.

Each child process writes the numbers of the jobs that it ran to a file when it ends.
"""

from __future__ import annotations

import atexit
import os
from array import array
from pathlib import Path

from schedo import Schedo

APP = "bench.peers.served_app:app"
TASKS = 10
app = Schedo()
_ran = array("q")


async def _run(n: int, filler: str = "") -> None:
    _ran.append(n)


for _each in range(TASKS):
    app.task(name=f"task{_each}")(_run)


@atexit.register
def _write_tally() -> None:
    directory = os.environ.get("BENCH_TALLY")
    if directory and _ran:
        Path(directory, f"{os.getpid()}.tally").write_bytes(_ran.tobytes())
