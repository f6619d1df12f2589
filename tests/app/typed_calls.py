"""Calls that mypy accepts, and calls that it refuses: each ignored error must be one.

`make types` checks this module; an ignored line without an error is an error there.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import assert_type

from schedo import CurrentJob, JobHandle, Retry, Schedo
from schedo.errors import SchedoError


async def lifespan(app: Schedo) -> AsyncIterator[None]:
    yield


app = Schedo(lifespan=lifespan)


@app.around
async def around(job: CurrentJob) -> AsyncIterator[None]:
    yield


@app.around
@contextlib.asynccontextmanager
async def around_as_context_manager(job: CurrentJob) -> AsyncIterator[str]:
    yield job.id


@app.on_error
def note(job: CurrentJob, error: BaseException) -> None: ...


@app.on_error
async def report(job: CurrentJob, error: BaseException) -> None: ...


@app.around  # type: ignore[type-var]
async def around_the_name(job: str) -> AsyncIterator[None]:
    yield


@app.on_error  # type: ignore[type-var]
def takes_no_error(job: CurrentJob) -> None: ...


@app.task(
    retry=Retry(max_attempts=3),
    requires={"labels": {"gpu": ["a100", "h100"], "vram": {">=": 40}}, "resources": {"cpu": 3}},
    prefer=[{"zone": "lhr"}, {"labels": {"zone": "eu"}, "weight": 2}, {}],
)
async def resize(path: str, width: int = 100) -> str:
    return f"{path} {width}"


@app.task(retries=5, retry=None)
def count(words: list[str]) -> int:
    return len(words)


async def accepted() -> None:
    job = await resize.enqueue("a.png", width=5)
    assert_type(job, JobHandle[str])
    assert_type(await job.result(), str)
    urgent = resize.options(
        delay=timedelta(minutes=5), retry="webhook", requires={"worker": "w1"}, prefer=[{}]
    )
    assert_type(await urgent.enqueue("a.png"), JobHandle[str])
    assert_type(await resize.broadcast("a.png"), list[JobHandle[str] | SchedoError])
    jobs = [resize.options(unique=f"resize {path}").job(path) for path in ("a.png", "b.png")]
    assert_type(await resize.enqueue_many(jobs), list[JobHandle[str] | SchedoError])
    await resize.enqueue_many([resize.job("a.png", width=5), {"path": "b.png"}])


def accepted_in_sync_code() -> None:
    job = count.enqueue_sync(["a"])
    assert_type(job, JobHandle[int])
    assert_type(job.result_sync(timeout=5), int)
    assert_type(count.options(queue="slow").enqueue_sync([]).result_sync(), int)
    assert_type(resize.enqueue_sync("a.png").result_sync(), str)


async def refused() -> None:
    await resize.enqueue(1)  # type: ignore[arg-type]
    await resize.enqueue("a.png", height=5)  # type: ignore[call-arg]
    await resize.options(dealy="5m").enqueue("a.png")  # type: ignore[call-arg]
    await resize.broadcast()  # type: ignore[call-arg]
    resize.options(unique="k").job(5)  # type: ignore[arg-type]
    await resize.enqueue_many([count.job(["a"])])  # type: ignore[list-item]
    resize.options(requires={"label": {"gpu": "a100"}})  # type: ignore[arg-type]
    resize.options(requires={"resources": {"cpu": None}})  # type: ignore[arg-type]
    resize.options(prefer={"zone": "lhr"})  # type: ignore[arg-type]
    resize.options(retry=2.5)  # type: ignore[arg-type]
    resize.options(broadcast=True)  # type: ignore[call-arg]


def refused_in_sync_code() -> None:
    count.enqueue_sync("a")  # type: ignore[arg-type]
    count.enqueue_sync()  # type: ignore[call-arg]
    count.options(queue=5).enqueue_sync([])  # type: ignore[arg-type]
    count.enqueue_sync(["a"]).result_sync().upper()  # type: ignore[attr-defined]


@app.task(requires={"gpu": "a100"})  # type: ignore[call-overload,untyped-decorator]
async def misses_the_word_labels() -> None: ...


@app.task(retry={1, 2})  # type: ignore[call-overload,untyped-decorator]
async def has_a_set_as_its_retry_policy() -> None: ...
