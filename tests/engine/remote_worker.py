"""The model test of remote workers: one run of it, and a worker with random failures."""

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

REQUIREMENTS = (
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
class ModelRun:
    """The current server, the promises that it made, and the violations that were found."""

    loop: VirtualLoop
    random: Random
    disk: Disk
    server: Server | None = None
    is_healed: bool = False  # no failure is injected any more
    jobs: dict[int, JobSpec] = field(default_factory=dict)  # acknowledged
    results: dict[LeaseKey, bytes | None] = field(default_factory=dict)  # confirmed
    begun: Counter[int] = field(default_factory=Counter)
    offers: Counter[str] = field(default_factory=Counter)  # by outcome
    # Attempts that their worker began and gave up.
    released: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    workers: list[RemoteWorker] = field(default_factory=list)

    def chance(self, probability: float) -> bool:
        return not self.is_healed and self.random.random() < probability

    async def pause(self, most_s: float) -> None:
        await self.loop.pass_time(self.random.uniform(0, most_s))

    async def serve(self) -> None:
        self.server = await Server(self.loop, self.disk, window=8).start()

    async def kill(self) -> None:
        server, self.server = self.server, None
        assert server is not None, "no server is running"
        for worker in self.workers:
            worker.note_server_death(self.disk)
        await server.die()

    def check_begin(self, worker: RemoteWorker, lease: Lease) -> None:
        """Note that a worker begins an attempt; no other one may run the same job."""
        self.begun[lease.key.job_id] += 1
        for other in self.workers:
            if not other.calls:
                other.excuse_after_gap()
            for key, running in other.running.items():
                if key.job_id == lease.key.job_id and not running.is_excused:
                    self.faults.append(f"{worker.name} runs {lease.key}, {other.name} runs {key}")


class RemoteWorker:
    """A remote worker that follows the protocol, with random failures."""

    def __init__(self, run: ModelRun, number: int) -> None:
        random = run.random
        self.run = run
        self.name = f"far-{number}"
        self.slots = random.choice((1, 2, 5))
        self.region = random.choice(("eu", "us"))
        self.session_timeout_s = random.choice((6.0, 30.0))
        self.life = 0
        self.running: dict[LeaseKey, Running] = {}
        self.results: dict[LeaseKey, AttemptResult] = {}  # not confirmed
        self.last_response_at = run.loop.time()
        self.has_sessions = number < 3
        self.drain_requested = False
        self.calls: set[asyncio.Task[PollResponse]] = set()

    # Life.

    async def live(self) -> None:
        while True:
            await self.work()
            run = self.run
            if run.chance(0.03):
                await self.restart()
            elif run.chance(0.03):
                await run.pause(2 * self.session_timeout_s)  # silent; its attempts continue
                self.end_some()
            elif run.chance(0.02):
                self.region = run.random.choice(("eu", "us"))
            elif self.drain_requested or run.chance(0.02):
                await self.drain()
                await self.restart()
            await run.pause(0.2)

    async def restart(self) -> None:
        self.life += 1
        self.drain_requested = False
        self.running.clear()
        self.results.clear()
        await self.run.pause(10)

    async def drain(self) -> None:
        """Drain: finish the running attempts, report them, and disconnect."""
        for _ in range(100):
            if not self.running and not self.results:
                break
            await self.exchange(max_leases=0, is_draining=True, running=self.names())
            await self.run.loop.pass_time(0.5)
            self.end_some()
        await self.exchange(max_leases=0, is_draining=True, running=self.names())

    def note_server_death(self, disk: Disk) -> None:
        """Excuse the attempts whose start the dead server had not written."""
        for call in self.calls:
            call.cancel()
        for key, running in self.running.items():
            if key not in disk.begun:
                running.is_excused = True

    # Requests.

    def session(self) -> str:
        return f"life {self.life}" if self.has_sessions else ""

    def names(self) -> frozenset[LeaseKey]:
        return frozenset({*self.running, *self.results})

    async def work(self) -> None:
        """Poll for work, and report the attempts that end during the poll."""
        run = self.run
        wait_s = run.random.choice((0.0, 1.0, 2.0))
        max_leases = run.random.choice((None, self.slots, 1))
        poll = run.loop.create_task(
            self.exchange(
                max_leases=max_leases,
                wait_s=wait_s,
                running=self.names(),
                session_timeout_s=self.session_timeout_s,
            )
        )
        while not poll.done():
            await asyncio.wait([poll], timeout=run.random.uniform(0.1, 0.6))
            self.end_some()
            if not poll.done() and self.results and run.random.random() < 0.5:
                await self.exchange(max_leases=0)
        self.end_some()

    def request(self, **fields: Any) -> PollRequest:
        spec = WorkerSpec(
            self.name,
            self.slots,
            frozenset({"work"}),
            labels={"region": self.region},
            resources={"cpu": 4_000},
        )
        defaults = {"supports_offers": True, "session_timeout_s": self.session_timeout_s}
        return PollRequest(self.name, self.session(), spec, **(defaults | fields))

    async def exchange(self, **fields: Any) -> None:
        """Send a request and follow its response, unless one of the two is lost."""
        run = self.run
        if run.server is None:
            self.excuse_after_gap()
            await run.pause(0.5)
            return
        reports = list(self.results.values())
        progress = [Progress(key, ProgressUpdate(1.0)) for key in list(self.running)[:1]]
        request = self.request(reports=reports, progress=progress, **fields)
        self.excuse_after_gap()
        life = self.life
        call = self.send(run.server, request)
        if run.chance(0.04):
            run.loop.call_later(run.random.uniform(0, 1.0), call.cancel)
        response = await self.await_response(call)
        if response is None:
            await run.pause(1.0)
            return
        if self.life != life or run.chance(0.03):
            return  # the response is lost
        self.take(response, reports)
        offers = [lease for lease in response.leases if lease.key in response.offers]
        if offers:
            await self.reply_to_offers(offers)

    def send(self, server: Server, request: PollRequest) -> asyncio.Task[PollResponse]:
        call = self.run.loop.create_task(server.engine.sessions.work(request))
        self.calls.add(call)
        return call

    def excuse_after_gap(self) -> None:
        """After a long gap between two requests, the server may have revoked the attempts."""
        gap_s = self.run.loop.time() - self.last_response_at
        if gap_s >= min(RETURN_S, self.session_timeout_s) - 0.1:
            for running in self.running.values():
                running.is_excused = True

    def take(self, response: PollResponse, reports: list[AttemptResult]) -> None:
        self.drain_requested = self.drain_requested or response.drain
        self.note_confirmed(reports, {key for key, _ in response.refused})
        for key in response.revoked:
            running = self.running.pop(key, None)
            if running is not None and not running.is_excused:
                self.run.faults.append(f"{key} was taken from {self.name}, which kept its session")
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
                self.run.results[report.key] = value

    async def reply_to_offers(self, offers: list[Lease]) -> None:
        """Accept some of the offers, reject some, and ignore some."""
        run = self.run
        accepted, rejected = [], []
        for lease in offers:
            if run.chance(0.2):
                rejected.append((lease.key, "it is busy"))
                run.offers["rejected"] += 1
            elif not run.chance(0.2):
                accepted.append(lease)
                run.offers["accepted"] += 1
        if run.server is None or not offers:
            return
        await run.pause(0.1)
        keys = [lease.key for lease in accepted]
        before = self.life
        response = await self.send_offer_replies(keys, rejected)
        if response is None or self.life != before:
            return
        for lease in accepted:
            if lease.key not in response.revoked:
                self.begin(lease)

    async def send_offer_replies(
        self, accepted: list[LeaseKey], rejected: list[tuple[LeaseKey, str]]
    ) -> PollResponse | None:
        run = self.run
        if run.server is None:
            return None
        running = frozenset({*self.names(), *accepted})
        request = self.request(max_leases=0, accept=accepted, reject=rejected, running=running)
        response = await self.await_response(self.send(run.server, request))
        return None if run.chance(0.03) else response

    async def await_response(self, call: asyncio.Task[PollResponse]) -> PollResponse | None:
        try:
            return await call
        except WorkerReplaced:
            self.run.faults.append(f"{self.name} was replaced")
        except (SchedoError, asyncio.CancelledError):
            pass
        finally:
            self.calls.discard(call)
            self.last_response_at = self.run.loop.time()
        return None

    # Running attempts.

    def begin(self, lease: Lease) -> None:
        run = self.run
        run.check_begin(self, lease)
        ends_at = run.loop.time() + run.random.choice((0.0, 0.2, 1.0, 6.0))
        self.running[lease.key] = Running(lease, ends_at)
        if len(self.running) > self.slots:
            run.faults.append(f"{self.name} runs more than {self.slots}: {list(self.running)}")
        needs = [each.lease.options.requirements for each in self.running.values()]
        if (
            sum(
                dict(requirements.resources).get("cpu", 0) for requirements in needs if requirements
            )
            > 4_000
        ):
            run.faults.append(f"{self.name} has less than what its attempts need")

    def end_some(self) -> None:
        now = self.run.loop.time()
        for key, running in list(self.running.items()):
            if running.ends_at <= now:
                del self.running[key]
                self.results[key] = AttemptResult(key, self.outcome(key))

    def outcome(self, key: LeaseKey) -> Any:
        run = self.run
        if run.chance(0.1):
            return Failed(Failure("ValueError", "no"))
        if run.chance(0.1):
            run.released[key.job_id] += 1
            return run.random.choice((Released(), Snoozed(2 * SECOND)))
        return Completed(f'"{key.job_id} {key.attempt} {key.epoch}"'.encode())
