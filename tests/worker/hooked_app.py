"""An application with a lifespan and hooks around its attempts; each writes into a file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from schedo import CurrentJob, Schedo


def note(line: str) -> None:
    with Path("story.txt").open("a") as file:
        file.write(f"{line}\n")


async def lifespan(app: Schedo) -> AsyncIterator[None]:
    app.state.pool = "pool"
    note("start")
    yield
    note("stop")


app = Schedo(lifespan=lifespan)


@app.around
async def around(job: CurrentJob) -> AsyncIterator[None]:
    note(f"before {job.task}")
    yield
    note("after")


@app.on_error
def on_error(job: CurrentJob, error: BaseException) -> None:
    note(f"{job.task}: {error!r}")


@app.task(retries=0)
def use_pool() -> str:
    return str(app.state.pool)


@app.task(retries=0)
async def fail() -> None:
    raise ValueError("no")
