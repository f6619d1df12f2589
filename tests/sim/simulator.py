"""Runs one simulated world: `run(seed)` returns its trace.

The world has faults for some minutes; then all faults end. Schedules continue for a while and are
then deleted. The world ends when every job has ended, or after half a day.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from schedo.core.states import FINAL
from schedo.errors import NotFound
from tests.sim.clients import Clients
from tests.sim.plan import Plan
from tests.sim.trace import Broke, Ended, Trace
from tests.sim.world import World
from tests.store.model_records import count_waiting
from tests.store.steps import all_jobs

ENGINE_LOG = logging.getLogger("schedo.engine")
PROBE_EVERY_S = 10.0
QUIET_S = 400.0  # longer than the most frequent schedules' interval and the late threshold
REST_MAX_S = 12 * 3600.0
SERVED_MAX_S = 3600.0


def run(seed: int, plan: Plan | None = None, store: str | None = None) -> Trace:
    """Run one world and return its trace.

    The seed says which store it has, unless that is given.
    """
    world = World(seed, plan, store)
    bugs = BugLog(world)
    was_level, was_propagating = ENGINE_LOG.level, ENGINE_LOG.propagate
    ENGINE_LOG.setLevel(logging.ERROR)
    ENGINE_LOG.propagate = False
    ENGINE_LOG.addHandler(bugs)
    asyncio.set_event_loop(None)
    try:
        world.loop.run_until_complete(_live(world))
    finally:
        ENGINE_LOG.removeHandler(bugs)
        ENGINE_LOG.setLevel(was_level)
        ENGINE_LOG.propagate = was_propagating
        world.close()
    return world.trace


async def _live(world: World) -> None:
    clients = Clients(world)
    world.boot()
    for worker in world.remote:
        world.loop.create_task(worker.live())
    probes = world.loop.create_task(_probe(world))
    await _trouble(world, clients)
    world.calm()
    if await _is_served(world):
        await clients.repair()
        await world.loop.pass_time(QUIET_S)
        await clients.end_schedules()
        await _rest(world)
        probes.cancel()
        await _record_end(world)
    else:
        probes.cancel()
        world.record(Broke, "no server became ready after the faults had ended")
    world.is_over = True
    for server in (world.server, *world.draining):
        if server is not None:
            server.die_soon()
    await world.loop.pass_time(1.0)


async def _trouble(world: World, clients: Clients) -> None:
    plan, random = world.plan, world.random
    world.disk.faults = plan.faults
    end = world.loop.time() + plan.minutes * 60
    rates = {
        "act": plan.action_every_s,
        "crash": plan.crash_every_s,
        "stop": plan.stop_every_s,
        "step": plan.step_every_s,
        "handover": plan.handover_every_s,
    }
    next_at = {
        name: world.loop.time() + random.expovariate(1 / every)
        for name, every in rates.items()
        if every
    }
    while True:
        name, at = min(next_at.items(), key=lambda item: item[1])
        if at >= end:
            return
        await world.loop.pass_time(max(0.0, at - world.loop.time()))
        next_at[name] = world.loop.time() + random.expovariate(1 / rates[name])
        if name == "act":
            clients.act()
        elif name == "crash" and world.server is not None:
            world.server.die_soon()
        elif name == "stop":
            await world.stop_server()
        elif name == "handover":
            await world.hand_over()
        elif name == "step":
            # Whole seconds: a step below half a second counts as elapsed time.
            small, large = random.randint(-10, 10), random.randint(-12 * 3600, 12 * 3600)
            delta_us = random.choice((small, large)) * 1_000_000
            world.set_clock(delta_us, notices=plan.steps_noticed)


async def _is_served(world: World) -> bool:
    """Wait until a server runs without an error; return False after the time limit."""
    until = world.loop.time() + SERVED_MAX_S
    while world.loop.time() < until:
        server = world.server
        if server is not None and server.is_open and server.engine.health().ready:
            return True
        await world.loop.pass_time(1.0)
    return False


async def _probe(world: World) -> None:
    while True:
        await world.loop.pass_time(PROBE_EVERY_S)
        server = world.server
        if server is not None and server.is_open and server.engine._loop.failure is None:
            server.probe()


async def _rest(world: World) -> None:
    """Return when every job has ended, or after the time limit."""
    until = world.loop.time() + REST_MAX_S
    while world.loop.time() < until:
        await world.loop.pass_time(20.0)
        if all(job.state in FINAL for job in world.disk.memory._jobs.values()):
            return


async def _record_end(world: World) -> None:
    server = world.server
    assert server is not None, "a calm server stays"
    engine = server.engine
    await engine.flush()
    stored = await all_jobs(engine.store)
    jobs = []
    for job in stored:
        with contextlib.suppress(NotFound):  # the job has been pruned meanwhile
            jobs.append(await engine.get(job.id))
    schedules = (await engine.list_schedules(None, 1_000)).schedules
    statuses = [*await engine.list_queues()]
    running = sum(status.running for status in statuses)
    waiting = {status.queue.name: status.waiting for status in statuses if status.waiting}
    expected = count_waiting(world.disk.memory._jobs.values())
    if waiting != expected:
        world.record(Broke, f"the engine counts {waiting}, it should be {expected}")
    world.record(Ended, tuple(jobs), tuple(schedules), running)


class BugLog(logging.Handler):
    """A log handler that records internal errors of the engine in the trace."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            error = record.exc_info[1]
            self._world.record(Broke, f"{record.getMessage()}: {error!r}")
