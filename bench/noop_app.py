"""The application of the benchmarks, with tasks that do almost nothing.

Each child process counts the jobs that it ran and writes their numbers to a file when it ends, so
that a benchmark can prove that every job ran once.
"""

from __future__ import annotations

import atexit
import os
import time
from array import array
from pathlib import Path

from schedo import Schedo

app = Schedo()
_tally = array("q")


@app.task
async def noop(n: int = 0) -> None:
    _tally.append(n)


@app.task
async def stamp(run: int = 0) -> int:
    """Return the time of the call in microseconds."""
    return time.time_ns() // 1000


@app.task
async def stumble(run: int = 0) -> None:
    """Fail, with one of a few messages."""
    raise RuntimeError(f"the gateway answered {500 + run % 4}")


@atexit.register
def _write_tally() -> None:
    directory = os.environ.get("BENCH_TALLY")
    if directory and _tally:
        Path(directory, f"{os.getpid()}.tally").write_bytes(_tally.tobytes())


def read_tallies(directory: Path) -> list[int]:
    """Return the numbers of all jobs that ran; a job that ran twice is listed twice."""
    numbers = array("q")
    for path in sorted(directory.glob("*.tally")):
        numbers.frombytes(path.read_bytes())
    return numbers.tolist()
