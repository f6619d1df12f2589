"""A scheduler with remote workers, whose turns and commits a test takes by hand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from schedo.core.commands import HoldLease, HoldStop, Invoke, Poll
from schedo.core.leases import AttemptResult, Completed, Lease
from schedo.core.model import Job, JobSpec, LeaseKey, Options
from schedo.core.paged_index import Window
from schedo.core.scheduler import Scheduler
from schedo.core.worker_messages import Decided, PollRequest, PollResponse
from schedo.core.worker_pool import WorkerSpec
from schedo.errors import SchedoError
from tests.core.builders import SECOND, T0, make_spec, worker_spec
from tests.core.server import Server

MILLISECOND = SECOND // 1_000


def make_poll(name: str = "a", *, slots: int = 1, **fields: Any) -> PollRequest:
    """Return a request that reports and does not poll."""
    spec = WorkerSpec(name, slots, frozenset({"work"}), labels={"region": "eu"})
    defaults: dict[str, Any] = {"session": "s1", "spec": spec, "max_leases": 0}
    return PollRequest(name, **(defaults | {"supports_offers": True} | fields))


class Site(Server):
    """A server whose remote workers are in the test's hands; `begun` is what a local one began."""

    def __init__(self, *, local_slots: int = 0) -> None:
        self.ids = itertools.count(1)
        self.replies: dict[int, PollResponse | SchedoError] = {}
        self.begun: list[Lease] = []
        self.decided: list[Decided] = []
        self.results: list[AttemptResult] = []
        self.warnings: list[str] = []
        super().__init__(slots=0)
        if local_slots:
            self.attach(worker_spec("local", local_slots))

    def tick(self, now: int) -> list[Lease]:
        """Take a turn, as the engine does."""
        leases = super().tick(now)
        for lease in leases:
            if lease.worker in self.scheduler._session_table.by_name:
                self.apply(HoldLease(lease), now)
            else:
                self.begun.append(lease)
        stops, self.stops = self.stops, []
        for stop in stops:
            self.apply(HoldStop(stop), now)
        self.replies |= {reply.id: reply.reply for reply in self.scheduler.take_replies(now)}
        results, decided, _, warnings, *_ = self.scheduler.take_notes()
        self.results += results
        self.decided += decided
        self.warnings += warnings
        return leases

    def turn(self, now: int = T0) -> None:
        """Take a turn, make its changes durable, and take the turn that this allows."""
        self.tick(now)
        self.round(now)
        self.tick(now)

    def poll(self, name: str = "a", now: int = T0, **fields: Any) -> int:
        """Send a request, which waits for work unless `fields` say otherwise; return its id."""
        id_ = next(self.ids)
        request = make_poll(name, **({"max_leases": None, "wait_s": 30.0} | fields))
        self.apply(Poll(id_, request), now)
        self.turn(now)
        return id_

    def response(self, id_: int) -> PollResponse:
        """Return the response to a poll, which must be there."""
        reply = self.replies[id_]
        assert isinstance(reply, PollResponse), reply
        return reply

    def report_in(self, name: str = "a", now: int = T0, **fields: Any) -> PollResponse:
        """Send a request that polls for nothing; return its response."""
        return self.response(self.poll(name, now, **({"max_leases": 0, "wait_s": 0.0} | fields)))

    def poll_at_once(self, name: str = "a", now: int = T0, **fields: Any) -> PollResponse:
        """Send a request that takes what is there; return its response."""
        return self.response(self.poll(name, now, wait_s=0.0, **fields))

    def leased(self, name: str = "a", now: int = T0, **fields: Any) -> Lease:
        """Let the worker have a new job."""
        self.report_in(name, now, **fields)
        self.submit(make_spec(), now)
        [lease] = self.poll_at_once(name, now, **fields).leases
        return lease

    def status(self, name: str = "a", now: int = T0) -> str:
        return self.scheduler.worker_status(name, now).state

    def invoke(self, count: int = 1, now: int = T0, *, id_: str = "call") -> list[Job]:
        """Invoke jobs; return copies of them."""
        spec = JobSpec("work", b"{}", options=Options(at_most_once=True))
        jobs = [job.copy() for job in self.apply(Invoke(id_, spec, count), now)]
        self.turn(now)
        return jobs

    def run_until(self, now: int) -> None:
        """Take the turns that the scheduler asks for, each at its instant, and one at `now`."""
        while (wake_at := self.scheduler.next_wake_at()) is not None and wake_at < now:
            self.turn(wake_at)
        self.turn(now)

    def recover(self, now: int, *running: Lease, expected: Sequence[Lease] = ()) -> None:
        """Drop the scheduler and recover; the workers still run these attempts.

        expected: attempts that the engine does not have; a worker may still run them.
        """
        old = self.scheduler
        self.store.epoch += 1
        self.scheduler = Scheduler(
            epoch=self.store.epoch, last_id=old.last_id, random=lambda: 0.5, window=Window(100)
        )
        self.unloaded = []
        self.scheduler.take_over(old)
        self._restore()
        for lease in expected:
            self.scheduler.expect_worker(lease, now)
        for lease in (*running, *expected):
            stored = self.store.load_job(lease.key.job_id)
            assert stored is not None, "it is durable"
            self.scheduler.recover_running(stored, lease, now, now)
        self.scheduler.recovered(now)
        self.turn(now)

    def _restore(self) -> None:
        cordons = [each for each in self.store.cordons.values() if each is not None]
        self.scheduler.restore([], [], False, cordons=cordons)

    def restart(self, now: int, *expected: Lease, was_killed: bool = False) -> None:
        """Start the next server on the store; it expects the workers of these attempts."""
        old = self.scheduler
        self.store.epoch += 1
        self.scheduler = Scheduler(
            epoch=self.store.epoch, last_id=old.last_id, random=lambda: 0.5, window=Window(100)
        )
        self.scheduler.follow_server(now, was_killed=was_killed)
        self._restore()
        for lease in expected:
            stored = self.store.load_job(lease.key.job_id)
            assert stored is not None, "it is durable"
            self.scheduler.expect_worker(lease, now)
            self.scheduler.recover_running(stored, lease, now, now)
        self.scheduler.recovered(now)
        self.turn(now)


def done(lease: Lease) -> AttemptResult:
    return AttemptResult(lease.key, Completed(b"1"))


def keys(*leases: Lease) -> frozenset[LeaseKey]:
    return frozenset(lease.key for lease in leases)
