"""A remote worker as a random state machine with failures, and the world of the model test."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from schedo.core.leases import AttemptResult, Completed, Failed, Lease, Released, Snoozed, Stopped
from schedo.core.model import Failure, JobSpec, LeaseKey
from schedo.core.progress import ProgressUpdate
from schedo.core.requirements import Condition, Requirements
from schedo.core.worker_messages import PollRequest, PollResponse, Progress
from schedo.core.worker_pool import WorkerSpec
from schedo.errors import SchedoError, WorkerReplaced
from schedo.testing.loop import VirtualLoop
from tests.engine.virtual_server import Disk, Server

RETURN_S = 5.0  # a worker that reconnects within this time keeps its attempts

ROUTES = (
    None,
    None,
    Requirements(resources=(("cpu", 1_500),)),
    Requirements(labels=(Condition("region", "=", ("eu",)),)),
    Requirements(labels=(Condition("region", "!=", ("eu",)),), resources=(("cpu", 3_000),)),
)
SECOND = 1_000_000


@dataclass
class Running:
    """An attempt that a worker runs, and whether the server may have revoked it."""

    lease: Lease
    ends_at: float
    is_excused: bool = False


@dataclass
class Room:
    """The current server, the promises that it made, and the violations that were found."""

    loop: VirtualLoop
    random: Random
    disk: Disk
    server: Server | None = None
    is_calm: bool = False
    jobs: dict[int, JobSpec] = field(default_factory=dict)  # acknowledged
    results: dict[LeaseKey, bytes | None] = field(default_factory=dict)  # confirmed
    begun: Counter[int] = field(default_factory=Counter)
    offers: Counter[str] = field(default_factory=Counter)  # by outcome
    given_up: Counter[int] = field(default_factory=Counter)  # by a worker that had begun it
    faults: list[str] = field(default_factory=list)
    workers: list[RemoteWorker] = field(default_factory=list)

    def chance(self, probability: float) -> bool:
        return not self.is_calm and self.random.random() < probability

    async def pause(self, most_s: float) -> None:
        await self.loop.pass_time(self.random.uniform(0, most_s))

    async def serve(self) -> None:
        self.server = await Server(self.loop, self.disk, window=8).start()

    async def kill(self) -> None:
        server, self.server = self.server, None
        assert server is not None, "one is there"
        for worker in self.workers:
            worker.hear_of_death(self.disk)
        await server.die()

    def see(self, worker: RemoteWorker, lease: Lease) -> None:
        """A worker begins an attempt."""
        self.begun[lease.key.job_id] += 1
        for other in self.workers:
            if not other.requests:
                other.heed_gap()
            for key, running in other.running.items():
                if key.job_id == lease.key.job_id and not running.is_excused:
                    self.faults.append(f"{worker.name} runs {lease.key}, {other.name} runs {key}")


class RemoteWorker:
    """A remote worker that follows the protocol, with random failures."""

    def __init__(self, room: Room, number: int) -> None:
        random = room.random
        self.room = room
        self.name = f"far-{number}"
        self.slots = random.choice((1, 2, 5))
        self.region = random.choice(("eu", "us"))
        self.session_timeout_s = random.choice((6.0, 30.0))
        self.lives = 0
        self.running: dict[LeaseKey, Running] = {}
        self.results: dict[LeaseKey, AttemptResult] = {}  # not confirmed
        self.heard_at = room.loop.time()
        self.has_sessions = number < 3
        self.is_told_to_leave = False
        self.requests: set[asyncio.Task[PollResponse]] = set()

    # Life.

    async def live(self) -> None:
        while True:
            await self.work()
            room = self.room
            if room.chance(0.03):
                await self.restart()
            elif room.chance(0.03):
                await room.pause(
                    2 * self.session_timeout_s
                )  # it is silent, and its attempts continue
                self.end_some()
            elif room.chance(0.02):
                self.region = room.random.choice(("eu", "us"))
            elif self.is_told_to_leave or room.chance(0.02):
                await self.drain()
                await self.restart()
            await room.pause(0.2)

    async def restart(self) -> None:
        self.lives += 1
        self.is_told_to_leave = False
        self.running.clear()
        self.results.clear()
        await self.room.pause(10)

    async def drain(self) -> None:
        """Drain: finish the running attempts, report them, and disconnect."""
        for _ in range(100):
            if not self.running and not self.results:
                break
            await self.ask(max_leases=0, is_draining=True, running=self.names())
            await self.room.loop.pass_time(0.5)
            self.end_some()
        await self.ask(max_leases=0, is_draining=True, running=self.names())

    def hear_of_death(self, disk: Disk) -> None:
        """The server died: what it had not written of an attempt it cannot know."""
        for request in self.requests:
            request.cancel()
        for key, running in self.running.items():
            if key not in disk.begun:
                running.is_excused = True

    # Requests.

    def session(self) -> str:
        return f"life {self.lives}" if self.has_sessions else ""

    def names(self) -> frozenset[LeaseKey]:
        return frozenset({*self.running, *self.results})

    async def work(self) -> None:
        """Poll for work, and report attempts that end meanwhile."""
        room = self.room
        wait_s = room.random.choice((0.0, 1.0, 2.0))
        max_leases = room.random.choice((None, self.slots, 1))
        poll = room.loop.create_task(
            self.ask(
                max_leases=max_leases,
                wait_s=wait_s,
                running=self.names(),
                session_timeout_s=self.session_timeout_s,
            )
        )
        while not poll.done():
            await asyncio.wait([poll], timeout=room.random.uniform(0.1, 0.6))
            self.end_some()
            if not poll.done() and self.results and room.random.random() < 0.5:
                await self.ask(max_leases=0)
        self.end_some()

    async def ask(self, **fields: Any) -> None:
        """Send a request and follow its response, unless one of the two is lost."""
        room = self.room
        if room.server is None:
            self.heed_gap()
            await room.pause(0.5)
            return
        reports = list(self.results.values())
        progress = [Progress(key, ProgressUpdate(1.0)) for key in list(self.running)[:1]]
        offer = WorkerSpec(
            self.name,
            self.slots,
            frozenset({"work"}),
            labels={"region": self.region},
            resources={"cpu": 4_000},
        )
        asked = PollRequest(
            self.name,
            self.session(),
            offer,
            reports=reports,
            progress=progress,
            supports_offers=True,
            **({"session_timeout_s": self.session_timeout_s} | fields),
        )
        self.heed_gap()
        life = self.lives
        request = room.loop.create_task(room.server.engine.sessions.work(asked))
        self.requests.add(request)
        if room.chance(0.04):
            room.loop.call_later(room.random.uniform(0, 1.0), request.cancel)
        response = await self.answer_of(request)
        if response is None:
            await room.pause(1.0)
            return
        if self.lives != life or room.chance(0.03):
            return  # the response is lost
        self.take(response, reports)
        offers = [lease for lease in response.leases if lease.key in response.offers]
        if offers:
            await self.answer(offers)

    def heed_gap(self) -> None:
        """A worker that was disconnected for too long may have lost its attempts."""
        gap_s = self.room.loop.time() - self.heard_at
        if gap_s >= min(RETURN_S, self.session_timeout_s) - 0.1:
            for running in self.running.values():
                running.is_excused = True

    def take(self, response: PollResponse, reports: list[AttemptResult]) -> None:
        self.is_told_to_leave = self.is_told_to_leave or response.drain
        self.note_confirmed(reports, {key for key, _ in response.refused})
        for key in response.revoked:
            running = self.running.pop(key, None)
            if running is not None and not running.is_excused:
                self.room.faults.append(f"{key} was taken from {self.name}, which was well")
        for stop in response.stops:
            if stop.key in self.running:
                del self.running[stop.key]
                self.results[stop.key] = AttemptResult(stop.key, Stopped())
        for lease in response.leases:
            if lease.key not in response.offers:
                self.begin(lease)

    def note_confirmed(self, reports: list[AttemptResult], refused: set[LeaseKey]) -> None:
        """Note the results that the server has confirmed; it must keep them."""
        for report in reports:
            if self.results.pop(report.key, None) is not None and report.key not in refused:
                outcome = report.outcome
                value = outcome.result if isinstance(outcome, Completed) else None
                self.room.results[report.key] = value

    async def answer(self, offers: list[Lease]) -> None:
        """Accept some of the offers, reject some, and ignore some."""
        room = self.room
        accepted, rejected = [], []
        for lease in offers:
            if room.chance(0.2):
                rejected.append((lease.key, "it is busy"))
                room.offers["rejected"] += 1
            elif not room.chance(0.2):
                accepted.append(lease)
                room.offers["accepted"] += 1
        if room.server is None or not offers:
            return
        await room.pause(0.1)
        keys = [lease.key for lease in accepted]
        before = self.lives
        response = await self.tell_offers(keys, rejected)
        if response is None or self.lives != before:
            return
        for lease in accepted:
            if lease.key not in response.revoked:
                self.begin(lease)

    async def tell_offers(
        self, keys: list[LeaseKey], rejected: list[tuple[LeaseKey, str]]
    ) -> PollResponse | None:
        room = self.room
        if room.server is None:
            return None
        offer = WorkerSpec(
            self.name,
            self.slots,
            frozenset({"work"}),
            labels={"region": self.region},
            resources={"cpu": 4_000},
        )
        running = frozenset({*self.names(), *keys})
        asked = PollRequest(
            self.name,
            self.session(),
            offer,
            max_leases=0,
            accept=keys,
            reject=rejected,
            running=running,
            supports_offers=True,
            session_timeout_s=self.session_timeout_s,
        )
        request = room.loop.create_task(room.server.engine.sessions.work(asked))
        self.requests.add(request)
        response = await self.answer_of(request)
        return None if room.chance(0.03) else response

    async def answer_of(self, request: asyncio.Task[PollResponse]) -> PollResponse | None:
        try:
            return await request
        except WorkerReplaced:
            self.room.faults.append(f"{self.name} was replaced")
        except (SchedoError, asyncio.CancelledError):
            pass
        finally:
            self.requests.discard(request)
            self.heard_at = self.room.loop.time()
        return None

    # Running attempts.

    def begin(self, lease: Lease) -> None:
        room = self.room
        room.see(self, lease)
        ends_at = room.loop.time() + room.random.choice((0.0, 0.2, 1.0, 6.0))
        self.running[lease.key] = Running(lease, ends_at)
        if len(self.running) > self.slots:
            room.faults.append(f"{self.name} runs more than {self.slots}: {list(self.running)}")
        needs = [each.lease.options.requirements for each in self.running.values()]
        if sum(dict(route.resources).get("cpu", 0) for route in needs if route) > 4_000:
            room.faults.append(f"{self.name} has less than what its attempts need")

    def end_some(self) -> None:
        now = self.room.loop.time()
        for key, running in list(self.running.items()):
            if running.ends_at <= now:
                del self.running[key]
                self.results[key] = AttemptResult(key, self.outcome(key))

    def outcome(self, key: LeaseKey) -> Any:
        room = self.room
        if room.chance(0.1):
            return Failed(Failure("ValueError", "no"))
        if room.chance(0.1):
            room.given_up[key.job_id] += 1
            return room.random.choice((Released(), Snoozed(2 * SECOND)))
        return Completed(f'"{key.job_id} {key.attempt} {key.epoch}"'.encode())
