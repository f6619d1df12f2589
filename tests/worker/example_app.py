"""The application for the tests of child processes, with well-behaved and hostile handlers.

Each waits for the test by opening a named pipe, so nothing here depends on how fast a machine is.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import sys
from pathlib import Path

from schedo import JobHandle, Schedo, current_job
from tests.worker import raised

app = Schedo()
app.task(raised.raise_kind)
app.task(raised.raise_kind_plainly)


def read(pipe: str) -> str:
    return Path(pipe).read_text()


def write(pipe: str, text: str) -> None:
    Path(pipe).write_text(text)


def make_file(path: str) -> bool:
    """Return whether the file is new."""
    is_new = not Path(path).exists()
    Path(path).touch()
    return is_new


@app.task
async def add(a: int, b: int) -> int:
    return a + b


@app.task
async def where() -> int:
    return os.getpid()


@app.task
def where_plainly() -> int:
    return os.getpid()


@app.task
async def echo(text: str) -> str:
    return text


@app.task
def settings() -> list[str]:
    return sorted(name for name in os.environ if name.startswith("SCHEDO_"))


@app.task
async def leave() -> None:
    sys.exit(3)


@app.task
async def die_once(mark: str, how: str) -> str:
    """End the whole process on the first attempt."""
    if make_file(mark):
        if how == "exit":
            os._exit(7)
        if how == "crash":
            ctypes.string_at(0)
        descriptor = next(a.partition("=")[2] for a in sys.argv if a.startswith("--fd="))
        os.write(int(descriptor), b"this is no frame at all")
        await asyncio.Event().wait()
    return "survived"


@app.task
async def die_always() -> None:
    os._exit(9)


@app.task
async def block(pipe: str) -> str:
    """Block the event loop until the test writes into the pipe."""
    return read(pipe)


@app.task
async def wait_for(pipe: str) -> str:
    """Wait in a thread, so the event loop turns."""
    return await asyncio.to_thread(read, pipe)


@app.task
async def stubborn(pipe: str) -> None:
    """Signal the start, then ignore every cancellation."""
    write(pipe, "running")
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


@app.task
def watchful(pipe: str) -> None:
    """Signal the start, then poll for a stop."""
    write(pipe, "running")
    while not current_job().is_cancelled:
        pass
    write(pipe, "stopping")


@app.task
async def add_elsewhere(a: int, b: int) -> int:
    job = await add.enqueue(a, b)
    return await job.result()


@app.task
def add_elsewhere_plainly(a: int, b: int) -> int:
    async def ask() -> int:
        return await (await add.enqueue(a, b)).result()

    return asyncio.run(ask())


@app.task
def add_synchronously(a: int, b: int) -> int:
    (job,) = add.enqueue_many_sync([{"a": a, "b": b}])
    assert isinstance(job, JobHandle)
    return job.result_sync()


@app.task
async def add_everywhere(a: int, b: int) -> list[int]:
    jobs = await add.broadcast(a, b)
    return [await job.result() for job in jobs if isinstance(job, JobHandle)]


@app.task
async def enqueue_twice(key: str) -> str:
    await add.options(delay="1h", unique=key).enqueue(1, 2)
    await add.options(delay="1h", unique={"key": key, "on_conflict": "reject"}).enqueue(1, 2)
    return "not reached"


@app.task
async def enqueue_and_cancel() -> list[str]:
    job = await add.options(delay="1h").enqueue(1, 2)
    return [(await job.status())["state"], (await job.cancel())["state"]]


@app.cron("0 9 * * mon-fri", tz="Europe/Paris")
async def report() -> None: ...


@app.task
async def talk(text: str) -> str:
    print(text)
    logging.getLogger("shop").warning("%s in the log", text)
    return text
