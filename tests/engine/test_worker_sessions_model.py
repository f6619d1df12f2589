"""Remote workers as state machines, against a server that crashes and whose store fails at times.

Each run has one seed. After some minutes of trouble everything heals; then every job must end, and
nothing may be left behind.
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
from schedo.engine.answers import Accepted
from schedo.errors import SchedoError
from schedo.testing.loop import VirtualLoop
from tests.engine.remote_worker import ROUTES, SECOND, RemoteWorker, Room
from tests.engine.virtual_server import Disk, Server, leftovers, live

TROUBLE_S = 120.0
REST_MAX_S = 900.0
ANSWER_MAX_S = 150.0  # of an invocation, whatever happens to its workers

# People.


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
            requirements=random.choice(ROUTES),
        ),
    )


ACTS = ("submit", "cancel", "invoke", "reserve", "cordon", "uncordon", "drain")


async def people(room: Room) -> None:
    while not room.is_calm:
        await room.pause(1.0)
        if room.server is not None:
            act = room.random.choices(ACTS, (5, 2, 8, 4, 1, 2, 1))[0]
            await answered(room, room.server, act, do(room, room.server, act))


async def do(room: Room, server: Server, act: str) -> None:
    """Send a random request to the server."""
    random, engine = room.random, server.engine
    if act == "submit":
        specs = [draw_spec(random) for _ in range(random.choice((1, 1, 2, 12)))]
        answers: list[Any] = await engine.submit(specs)
        for answer, spec in zip(answers, specs, strict=True):
            assert isinstance(answer, Accepted)
            room.jobs[answer.job.id] = spec
    elif act == "cancel" and room.jobs:
        await engine.cancel(random.choice(list(room.jobs)))
    elif act == "invoke":
        room.loop.create_task(invoke(room, server))
    elif act == "reserve":
        room.loop.create_task(reserve(room, server))
    elif act in ("cordon", "uncordon"):
        await engine.sessions.cordon(random.choice(room.workers).name, act == "cordon")
    elif act == "drain":
        await engine.sessions.drain(random.choice(room.workers).name)


async def invoke(room: Room, server: Server) -> None:
    random = room.random
    once = random.random() < 0.7
    together = (f"together-{random.getrandbits(60)}",)
    options = Options(at_most_once=once, requirements=random.choice(ROUTES), tags=together)
    spec = JobSpec("work", options=options)
    wait_s, count = random.choice((0.0, 0.0, 10.0)), random.choice((1, 1, 2))
    await answered(room, server, "invoke", server.engine.invoke(spec, count, wait_s))


async def reserve(room: Room, server: Server) -> None:
    random = room.random
    with contextlib.suppress(SchedoError):
        route, count = random.choice(ROUTES), random.choice((1, 2))
        reservation = await server.engine.reserve("work", "default", route, count, 3.0)
        await room.pause(4.0)
        if server is not room.server:
            return
        if random.random() < 0.5:
            await server.engine.release_reservation(reservation.id, reservation.nonce)
        else:
            spec = JobSpec("work", options=Options(at_most_once=True))
            running = server.engine.commit_reservation(reservation.id, reservation.nonce, spec, 0.0)
            await answered(room, server, "commit", running)


async def answered(room: Room, server: Server, act: str, work: Any) -> None:
    """Record calls without a reply; a dead server completes none."""
    began_at = room.loop.time()
    with contextlib.suppress(SchedoError, TimeoutError):
        async with asyncio.timeout(ANSWER_MAX_S):
            await work
    if room.loop.time() - began_at >= ANSWER_MAX_S and not server.connection.is_dead:
        room.faults.append(f"{act} was not answered")


async def misfortune(room: Room) -> None:
    """Let the store fail and the server die at random times."""
    random, disk = room.random, room.disk
    while not room.is_calm:
        await room.pause(25)
        kind = random.choice(("flicker", "slow", "kill", "loads"))
        if kind == "kill":
            await room.kill()
            await room.pause(random.choice((0.5, 5.0)))
            await room.serve()
            continue
        if kind == "flicker":
            disk.commit_fails = random.choice((0.2, 1.0))
        elif kind == "loads":
            disk.load_fails = 0.3
        else:
            disk.delay_s = random.choice((0.05, 0.3))
        await room.pause(3)
        disk.commit_fails = disk.load_fails = 0.0
        disk.delay_s = 0.001


async def probe(room: Room) -> None:
    """Compare the counters with the records, repeatedly."""
    while True:
        await room.loop.pass_time(0.1)
        if room.server is None:
            continue
        for worker in room.server.engine._loop.scheduler._workers:
            offer, sums = worker.spec, Counter[str]()
            for amounts in worker.running.values():
                sums.update(dict(amounts))
            if offer.slots and len(worker.running) > offer.slots:
                room.faults.append(f"{offer.id} is given more than its slots")
            if any(sums[name] > most for name, most in offer.resources.items()):
                room.faults.append(f"{offer.id} is given more than its resources: {sums}")
            if {n: u for n, u in worker.used.items() if u} != {n: u for n, u in sums.items() if u}:
                room.faults.append(f"{offer.id} uses {worker.used}, which should be {sums}")


async def run(room: Room) -> None:
    loop = room.loop
    room.workers = [RemoteWorker(room, number) for number in range(4)]
    room.workers[0].region, room.workers[1].region = "eu", "us"
    await room.serve()
    lives = [loop.create_task(worker.live()) for worker in room.workers]
    troubles = [loop.create_task(people(room)), loop.create_task(misfortune(room))]
    probing = loop.create_task(probe(room))
    await loop.pass_time(TROUBLE_S)
    room.is_calm = True
    await asyncio.gather(*troubles)
    assert room.server is not None
    engine = room.server.engine
    while not engine.health().ready:
        await loop.pass_time(1)
    for number, worker in enumerate(room.workers):
        worker.region = ("eu", "us")[number % 2]
        with contextlib.suppress(SchedoError):
            await engine.sessions.cordon(worker.name, False)
    await rest(room)
    await loop.pass_time(10)
    await engine.flush()
    for task in [*lives, probing]:
        for failed in [task] if task.done() else []:
            await failed
        task.cancel()


async def rest(room: Room) -> None:
    until = room.loop.time() + REST_MAX_S
    while room.loop.time() < until:
        await room.loop.pass_time(5)
        stored = (await room.disk.jobs()).values()
        if all(job.state in FINAL for job in stored) and not any(w.results for w in room.workers):
            return


async def check(room: Room) -> None:
    """Compare the records on disk with the promises of the server."""
    assert room.server is not None
    jobs = await room.disk.jobs()
    faults = room.faults
    faults += [f"{ident} was acknowledged and is lost" for ident in room.jobs if ident not in jobs]
    faults += [f"{job.id} has not ended: {job}" for job in jobs.values() if not job.is_final]
    ends = Counter(key for key, end in room.disk.ends if end != "stale")
    faults += [f"{key} ended {times} times" for key, times in ends.items() if times > 1]
    faults += lost_results(room, jobs)
    faults += repeated_starts(room, jobs)
    faults += divided_groups(room, jobs)
    faults += leftovers(room.server.engine)


def lost_results(room: Room, jobs: dict[int, Job]) -> Iterator[str]:
    """A result that was confirmed to its worker is the job's result."""
    for key, result in room.results.items():
        job = jobs[key.job_id]
        if result is not None and job.state is State.COMPLETED and job.result != result:
            yield f"{key} was confirmed and {job.result!r} is there"
        if result is not None and job.state not in (State.COMPLETED, State.CANCELLED):
            yield f"{key} was confirmed as completed, and the job is {job}"


def repeated_starts(room: Room, jobs: dict[int, Job]) -> Iterator[str]:
    """An at_most_once job starts again only after a worker has given it up."""
    for ident, times in room.begun.items():
        job = jobs[ident]
        if job.options.at_most_once and times > 1 + room.given_up[ident]:
            yield f"{ident} runs at most once and was begun {times} times: {job}"


def divided_groups(room: Room, jobs: dict[int, Job]) -> Iterator[str]:
    """The jobs of a reservation are all begun, or all refused."""
    for tag in {job.options.tags for job in jobs.values() if job.options.tags}:
        group = [job for job in jobs.values() if job.options.tags == tag]
        refused = [job for job in group if job.failure and job.failure.type == NO_CAPACITY]
        if refused and any(room.begun[job.id] for job in group):
            yield f"of {group} some were begun and some refused"


@pytest.mark.parametrize("seed", range(12))
def test_remote_workers_lose_no_job_whatever_fails(seed: int) -> None:
    async def test(loop: VirtualLoop) -> None:
        random = Random(seed)
        room = Room(loop, random, Disk(random))
        await run(room)
        await check(room)
        assert room.faults == []
        assert room.results, "something was done"
        assert room.offers["accepted"], "something was invoked"

    live(test)
