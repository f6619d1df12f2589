"""Workers of the simulation that speak the worker protocol, and outlive the servers.

A RemoteWorker runs attempts of its own. A Drain is the process of a frozen server, which reports
the attempts of its connections to the server that has the store now.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from schedo.core.leases import AttemptResult, Completed, Failed, Lease, Outcome, Stopped
from schedo.core.model import LeaseKey
from schedo.core.worker_messages import PollRequest, PollResponse
from schedo.core.worker_pool import WorkerSpec
from tests.sim.trace import Attached, Doubted, Kept, Reported, Revoked, Started, StopSent
from tests.sim.workers import BOOM, Connection

if TYPE_CHECKING:
    from tests.sim.world import Server, World

RETURN_MAX_S = 0.025  # as the workers of schedo do
PAUSE_S = 0.2
POLL_S = 3.0
HANG_MAX_S = 200.0
REFUSED_MAX = 5


async def poll(world: World, request: PollRequest) -> tuple[Server, PollResponse] | None:
    """Send the request to the server that runs now; return its response, or None."""
    server = world.server
    if server is None or not server.is_open:
        return None
    task = server.run(server.engine.sessions.work(request))
    await asyncio.wait([task])
    if task.cancelled() or task.exception() is not None or server.is_dead:
        return None
    response: PollResponse = task.result()
    return server, response


class RemoteWorker:
    """A worker process that lives as long as the world."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.spec = WorkerSpec(f"far-{number}", 3, None, None)
        world.connections += 1
        self.number = world.connections
        world.record(Attached, self.number, self.spec.id, 0)
        self.running: dict[LeaseKey, Lease] = {}
        self.results: dict[LeaseKey, AttemptResult] = {}
        self.doubted: set[LeaseKey] = set()
        self.reported: set[LeaseKey] = set()  # to the server that runs now
        self.server: Server | None = None
        self.refused = 0  # times in a row that there was no server

    async def live(self) -> None:
        """Poll, run and report until the world ends."""
        world = self.world
        while not world.is_over:
            if world.server is not self.server:
                self.server = world.server
                self.reported.clear()
            reports = list(self.results.values())
            free = self.spec.slots - len(self.running)
            request = PollRequest(
                self.spec.id,
                "s",
                self.spec,
                frozenset(self.running),
                reports,
                wait_s=0.0 if reports else POLL_S,
                max_leases=max(free, 0),
            )
            if world.server is not None and world.server.is_open:
                self._note_reports(reports)
            found = await poll(world, request)
            if found is None:
                await world.loop.pass_time(world.random.uniform(0, self._return_s()))
            else:
                self._take(*found, reports)
                await world.loop.pass_time(PAUSE_S)

    def _return_s(self) -> float:
        """Return the longest wait before the next attempt to connect; it grows without a server."""
        self.refused = 0 if self.world.server is not None else self.refused + 1
        return RETURN_MAX_S if self.refused < REFUSED_MAX else 1.0

    def note_death(self) -> None:
        """Doubt the newest attempts: the next server may not know them."""
        for key in self.running:
            if key not in self.world.disk.begun | self.doubted:
                self.doubted.add(key)
                self.world.record(Doubted, self.number, key)

    def _note_reports(self, reports: list[AttemptResult]) -> None:
        for report in reports:
            if report.key not in self.reported:
                self.reported.add(report.key)
                # Its reply may have been lost with the last server, which had stored it.
                is_live = report.key not in self.doubted | self.world.disk.ended
                self.world.record(Reported, report.key, report.outcome, is_live)

    def _take(self, server: Server, response: PollResponse, reports: list[AttemptResult]) -> None:
        revoked = {*response.revoked, *(key for key, _ in response.refused)}
        for key in revoked & self.running.keys():
            self.world.record(Revoked, self.number, key)
        for key in (*revoked, *(report.key for report in reports)):
            self.running.pop(key, None)
            self.results.pop(key, None)
            self.doubted.discard(key)
        # An engine that fails ends all open polls. It has decided nothing, so the doubt stays.
        if server.engine._loop.failure is None:
            for key in [*self.doubted]:
                self.world.record(Kept, self.number, self.running[key])
            self.doubted.clear()
        for stop in response.stops:
            if stop.key in self.running and stop.key not in self.results:
                self.world.record(StopSent, self.number, stop)
                self._end(stop.key, Stopped())
        for lease in response.leases:
            self._begin(lease)

    def _begin(self, lease: Lease) -> None:
        world = self.world
        world.record(Started, self.number, lease)
        self.running[lease.key] = lease
        fails = not world.is_calm and world.random.random() < 0.2
        outcome = Failed(BOOM) if fails else Completed(b'"done"')
        takes = 0.1 if world.is_calm else world.random.expovariate(1 / 4)
        world.loop.call_later(takes, self._end, lease.key, outcome)

    def _end(self, key: LeaseKey, outcome: Outcome) -> None:
        if key in self.running:
            self.results.setdefault(key, AttemptResult(key, outcome))


class Drain:
    """The old process of a handover, a remote worker of the servers after it."""

    def __init__(self, world: World, server: Server, name: str) -> None:
        self.world = world
        self.server = server
        self.spec = WorkerSpec(name, 1, frozenset(), polls=True)
        self.results: dict[LeaseKey, AttemptResult] = {}

    @property
    def connections(self) -> list[Connection]:
        return list(self.server.connections.values())

    def take(self, key: LeaseKey, outcome: Outcome, *, is_live: bool) -> None:
        """Keep the outcome until a server has confirmed it."""
        self.world.record(Reported, key, outcome, is_live)
        self.results.setdefault(key, AttemptResult(key, outcome))

    def serve_on(self) -> None:
        """Report to the server itself, which goes on."""
        self.server.drain = None
        self.server.is_open = not self.server.is_dead
        for result in self.results.values():
            self.server.call_engine(lambda engine, each=result: engine.report(each))

    async def run(self, grace_s: float | None) -> None:
        """Report until all attempts have ended; then the process ends.

        grace_s: after which they are released; None: they may take as long as they take.
        """
        world, began_at = self.world, self.world.loop.time()
        until = began_at + HANG_MAX_S
        while held := {key for each in self.connections for key in each.held} | self.results.keys():
            if grace_s is not None and world.loop.time() > began_at + grace_s:
                for each in self.connections:
                    each.release_all()
            elif world.is_calm or world.loop.time() > until:
                for each in self.connections:
                    each.finish_all()
            reports = list(self.results.values())
            request = PollRequest(
                self.spec.id,
                "s",
                self.spec,
                frozenset(held),
                reports,
                is_draining=True,
                max_leases=0,
            )
            found = await poll(world, request)
            if found is not None:
                self._follow(found[1], reports)
            await world.loop.pass_time(PAUSE_S)
        self.server.die_soon()

    def _follow(self, response: PollResponse, reports: list[AttemptResult]) -> None:
        for report in reports:
            self.results.pop(report.key, None)
        for connection in self.connections:
            for key in response.revoked:
                if connection.held.pop(key, None) is not None:
                    self.world.record(Revoked, connection.number, key)
            for stop in response.stops:
                if stop.key in connection.held:
                    connection.stop(stop)
