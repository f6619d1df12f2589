"""Remote workers as state machines, against a server that crashes and whose store fails at times.

Each run has one seed. For two minutes clients send random requests while workers, server and store
fail. Then the failures stop: every job must end, and no record may remain in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from schedo.core.model import Job, JobSpec, Options, Retry
from schedo.core.placement import NO_CAPACITY
from schedo.core.states import FINAL, State
from schedo.engine.call_results import Accepted
from schedo.errors import SchedoError
from schedo.testing.loop import VirtualLoop
from tests.engine.remote_worker import REQUIREMENTS, SECOND, ModelRun, RemoteWorker
from tests.engine.virtual_server import Disk, Server, leftovers, live

FAILURES_S = 120.0
END_MAX_S = 900.0
REPLY_MAX_S = 150.0  # of an invocation, whatever happens to its workers


def draw_spec(random: Random) -> JobSpec:
    at_most_once = random.random() < 0.3
    thrice = Retry(max_attempts=3, backoff="fixed", initial_us=SECOND, jitter=0.0)
    return JobSpec(
        "work",
        b"{}" if random.random() < 0.8 else b'"' + b"x" * 5_000 + b'"',
        priority=random.choice((0, 0, 5)),
        options=Options(
            retry=None if at_most_once else thrice,
            timeout_us=random.choice((None, None, 8 * SECOND)),
            at_most_once=at_most_once,
            requirements=random.choice(REQUIREMENTS),
        ),
    )


ACTS = ("submit", "cancel", "invoke", "reserve", "cordon", "uncordon", "drain")


async def send_random_requests(run: ModelRun) -> None:
    while not run.is_healed:
        await run.pause(1.0)
        if run.server is not None:
            act = run.random.choices(ACTS, (5, 2, 8, 4, 1, 2, 1))[0]
            await check_reply(run, run.server, act, send_request(run, run.server, act))


async def send_request(run: ModelRun, server: Server, act: str) -> None:
    """Send a random request to the server."""
    random, engine = run.random, server.engine
    if act == "submit":
        specs = [draw_spec(random) for _ in range(random.choice((1, 1, 2, 12)))]
        answers: list[Any] = await engine.submit(specs)
        for accepted, spec in zip(answers, specs, strict=True):
            assert isinstance(accepted, Accepted)
            run.jobs[accepted.job.id] = spec
    elif act == "cancel" and run.jobs:
        await engine.cancel(random.choice(list(run.jobs)))
    elif act == "invoke":
        run.loop.create_task(invoke(run, server))
    elif act == "reserve":
        run.loop.create_task(reserve(run, server))
    elif act in ("cordon", "uncordon"):
        await engine.sessions.cordon(random.choice(run.workers).name, act == "cordon")
    elif act == "drain":
        await engine.sessions.drain(random.choice(run.workers).name)


async def invoke(run: ModelRun, server: Server) -> None:
    random = run.random
    once = random.random() < 0.7
    together = (f"together-{random.getrandbits(60)}",)
    options = Options(at_most_once=once, requirements=random.choice(REQUIREMENTS), tags=together)
    spec = JobSpec("work", options=options)
    wait_s, count = random.choice((0.0, 0.0, 10.0)), random.choice((1, 1, 2))
    await check_reply(run, server, "invoke", server.engine.invoke(spec, count, wait_s))


async def reserve(run: ModelRun, server: Server) -> None:
    random = run.random
    with contextlib.suppress(SchedoError):
        requirements, count = random.choice(REQUIREMENTS), random.choice((1, 2))
        reservation = await server.engine.reserve("work", "default", requirements, count, 3.0)
        await run.pause(4.0)
        if server is not run.server:
            return
        if random.random() < 0.5:
            await server.engine.release_reservation(reservation.id, reservation.nonce)
        else:
            spec = JobSpec("work", options=Options(at_most_once=True))
            running = server.engine.commit_reservation(reservation.id, reservation.nonce, spec, 0.0)
            await check_reply(run, server, "commit", running)


async def check_reply(run: ModelRun, server: Server, act: str, work: Any) -> None:
    """Await a call, and record a fault if it has no reply although its server lives."""
    began_at = run.loop.time()
    with contextlib.suppress(SchedoError, TimeoutError):
        async with asyncio.timeout(REPLY_MAX_S):
            await work
    if run.loop.time() - began_at >= REPLY_MAX_S and not server.connection.is_dead:
        run.faults.append(f"{act} had no reply")


async def inject_failures(run: ModelRun) -> None:
    """Let the store fail and the server die at random times."""
    random, disk = run.random, run.disk
    while not run.is_healed:
        await run.pause(25)
        kind = random.choice(("flicker", "slow", "kill", "loads"))
        if kind == "kill":
            await run.kill()
            await run.pause(random.choice((0.5, 5.0)))
            await run.serve()
            continue
        if kind == "flicker":
            disk.commit_fails = random.choice((0.2, 1.0))
        elif kind == "loads":
            disk.load_fails = 0.3
        else:
            disk.delay_s = random.choice((0.05, 0.3))
        await run.pause(3)
        disk.commit_fails = disk.load_fails = 0.0
        disk.delay_s = 0.001


async def check_counters(run: ModelRun) -> None:
    """Compare the slots and resources that a worker uses with its attempts, ten times a second."""
    while True:
        await run.loop.pass_time(0.1)
        if run.server is None:
            continue
        for worker in run.server.engine._loop.scheduler._workers:
            offer, sums = worker.spec, Counter[str]()
            for amounts in worker.running.values():
                sums.update(dict(amounts))
            if offer.slots and len(worker.running) > offer.slots:
                run.faults.append(f"{offer.id} has more than its slots")
            if any(sums[name] > most for name, most in offer.resources.items()):
                run.faults.append(f"{offer.id} has more than its resources: {sums}")
            if {n: u for n, u in worker.used.items() if u} != {n: u for n, u in sums.items() if u}:
                run.faults.append(f"{offer.id} uses {worker.used}, which should be {sums}")


async def run_model(run: ModelRun) -> None:
    loop = run.loop
    run.workers = [RemoteWorker(run, number) for number in range(4)]
    run.workers[0].region, run.workers[1].region = "eu", "us"
    await run.serve()
    life = [loop.create_task(worker.live()) for worker in run.workers]
    disturbances = [
        loop.create_task(send_random_requests(run)),
        loop.create_task(inject_failures(run)),
    ]
    probing = loop.create_task(check_counters(run))
    await loop.pass_time(FAILURES_S)
    run.is_healed = True
    await asyncio.gather(*disturbances)
    assert run.server is not None
    engine = run.server.engine
    while not engine.health().ready:
        await loop.pass_time(1)
    for number, worker in enumerate(run.workers):
        worker.region = ("eu", "us")[number % 2]
        with contextlib.suppress(SchedoError):
            await engine.sessions.cordon(worker.name, False)
    await wait_until_all_end(run)
    await loop.pass_time(10)
    await engine.flush()
    for task in [*life, probing]:
        for failed in [task] if task.done() else []:
            await failed
        task.cancel()


async def wait_until_all_end(run: ModelRun) -> None:
    until = run.loop.time() + END_MAX_S
    while run.loop.time() < until:
        await run.loop.pass_time(5)
        stored = (await run.disk.jobs()).values()
        if all(job.state in FINAL for job in stored) and not any(w.results for w in run.workers):
            return


async def check(run: ModelRun) -> None:
    """Compare the records on disk with the promises of the server."""
    assert run.server is not None
    jobs = await run.disk.jobs()
    faults = run.faults
    faults += [
        f"{job_id} was acknowledged and is lost" for job_id in run.jobs if job_id not in jobs
    ]
    faults += [f"{job.id} has not ended: {job}" for job in jobs.values() if not job.is_final]
    ends = Counter(key for key, end in run.disk.ends if end != "stale")
    faults += [f"{key} ended {times} times" for key, times in ends.items() if times > 1]
    faults += lost_results(run, jobs)
    faults += repeated_starts(run, jobs)
    faults += partly_begun_groups(run, jobs)
    faults += leftovers(run.server.engine)


def lost_results(run: ModelRun, jobs: dict[int, Job]) -> Iterator[str]:
    """Yield each result that was confirmed to its worker and is not the job's result."""
    for key, result in run.results.items():
        job = jobs[key.job_id]
        if result is not None and job.state is State.COMPLETED and job.result != result:
            yield f"{key} was confirmed, and the result is {job.result!r}"
        if result is not None and job.state not in (State.COMPLETED, State.CANCELLED):
            yield f"{key} was confirmed as completed, and the job is {job}"


def repeated_starts(run: ModelRun, jobs: dict[int, Job]) -> Iterator[str]:
    """Yield each at-most-once job that began again although no worker had given it up."""
    for job_id, times in run.begun.items():
        job = jobs[job_id]
        if job.options.at_most_once and times > 1 + run.released[job_id]:
            yield f"{job_id} runs at most once and was begun {times} times: {job}"


def partly_begun_groups(run: ModelRun, jobs: dict[int, Job]) -> Iterator[str]:
    """Yield each gang of which some jobs began and some were refused."""
    for tag in {job.options.tags for job in jobs.values() if job.options.tags}:
        group = [job for job in jobs.values() if job.options.tags == tag]
        refused = [job for job in group if job.failure and job.failure.type == NO_CAPACITY]
        if refused and any(run.begun[job.id] for job in group):
            yield f"of {group} some began and some were refused"


@pytest.mark.parametrize("seed", range(12))
def test_remote_workers_lose_no_job_whatever_fails(seed: int) -> None:
    async def test(loop: VirtualLoop) -> None:
        random = Random(seed)
        run = ModelRun(loop, random, Disk(random))
        await run_model(run)
        await check(run)
        assert run.faults == []
        assert run.results, "no result was confirmed"
        assert run.offers["accepted"], "no offer was accepted"

    live(test)
