"""A scheduler on a store that commits and loads step by step.

The server does the committer's rounds in four steps, so that a test can act
between them: take, commit, fetch, deliver.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from schedo.core import loads
from schedo.core.changes import Changes
from schedo.core.commands import (
    Accepted,
    AttachWorker,
    Cancel,
    Command,
    ConfigureQueue,
    DetachWorker,
    ExpireAndTrim,
    JobCommand,
    PutSchedule,
    Submit,
    Triggered,
    TriggerSchedule,
)
from schedo.core.leases import (
    AttemptResult,
    Blame,
    Completed,
    Failed,
    Lease,
    Lost,
    Outcome,
    StopRequest,
)
from schedo.core.loads import NOTHING_LOADED, Loaded, LoadJob, Needs
from schedo.core.model import (
    Decision,
    Job,
    JobSpec,
    LeaseKey,
    Overlap,
    Queue,
    Schedule,
    ScheduleSpec,
)
from schedo.core.paged_index import Window
from schedo.core.scheduler import Scheduler
from schedo.core.states import State
from schedo.core.worker_pool import WorkerSpec
from schedo.errors import SchedoError
from tests.core.builders import DAY, HOUR, SECOND, T0, make_spec, tries, worker_spec
from tests.core.fake_store import OOPS, FakeStore, Written

R = TypeVar("R")


class CommandCall(NamedTuple):
    """A command, and what is called with its reply or its error."""

    command: Command[Any]
    then: Callable[[Any], object]
    refused: Callable[[SchedoError], object] | None


class Server:
    """A scheduler on a store; it commits and loads only when the test calls for it."""

    page_url = ""

    def __init__(
        self, capacity: int = 100, *, store: FakeStore | None = None, now: int = T0, slots: int = 10
    ) -> None:
        self.store = store or FakeStore()
        self.capacity = capacity
        self.random = 0.5
        self.scheduler = self._recovered(now)
        if slots:
            self.attach(worker_spec(slots=slots))
        self.round(now)

    def _recovered(self, now: int) -> Scheduler:
        store = self.store
        store.epoch += 1
        self.taken: Written | None = None
        self.requested_loads: list[loads.Load] = []
        self.fetched: list[tuple[loads.Load, Any]] = []
        self.unloaded: list[tuple[CommandCall, Needs]] = []
        self.loading = self.unloaded[:]  # commands whose loads are under way
        self.leases: dict[LeaseKey, Lease] = {}  # dispatched and not yet reported
        self.stops: list[StopRequest] = []
        scheduler = Scheduler(
            epoch=store.epoch,
            last_id=max([0, *store.jobs, *store.schedules, *store.bulk_operations]),
            random=lambda: self.random,
            window=Window(self.capacity),
            offset_us=store.offset_us,
            page_url=self.page_url,
        )
        queues = [queue.changed() for queue in store.queues.values()]
        pauses = [pause for pause in store.pauses.values() if pause is not None]
        cordons = [each for each in store.cordons.values() if each is not None]
        scheduler.waiting.add_snapshot(store.count_waiting())
        operations = [each for each in store.bulk_operations.values() if each is not None]
        expectations = [each.copy() for each in store.expectations.values() if each is not None]
        scheduler.restore(
            queues,
            store.ready_keys(),
            store.has_blocked(),
            pauses,
            cordons,
            operations,
            expectations,
        )
        for job in store.unfinished():
            if job.state is State.RUNNING:
                loaded = store.load_job(job.id)
                assert loaded is not None
                scheduler.recover_lost(loaded, Lost("the server was restarted", Blame.NONE), now)
        return scheduler

    def crash(self, now: int) -> None:
        """Lose everything that is not durable, and recover; the workers are gone too."""
        self.scheduler = self._recovered(now)

    def follow_clock(self, delta_us: int) -> None:
        """Follow a step of the wall clock, between two rounds."""
        assert self.taken is None, "a commit is under way"
        assert not self.requested_loads, "something is being loaded"
        self.store.shift(delta_us)
        self.scheduler.follow_clock(delta_us)

    # Rounds, as the engine's committer makes them.

    def take(self) -> None:
        """Take the changes and the loads of the scheduler; copy the changed records now."""
        changes: Changes = self.scheduler.take_changes()
        self.taken = Written(
            [job.copy() for job in changes.jobs.values()],
            [s.copy() for s in changes.schedules.values() if s.id not in changes.schedules_deleted],
            list(changes.schedules_deleted),
            [queue.changed() for queue in changes.queues.values()],
            dict(changes.pauses),
            dict(changes.cordons),
            dict(changes.bulk_operations),
            list(changes.jobs_deleted),
            {ident: each and each.copy() for ident, each in changes.expectations.items()},
            list(changes.attempts),
            list(changes.outputs),
            list(changes.decisions),
            list(changes.ended_runs),
        )
        self.loading, self.unloaded = self.unloaded, []
        needed = [load for _, needs in self.loading for load in needs.loads]
        self.requested_loads = [*self.scheduler.take_loads(), *dict.fromkeys(needed)]

    def commit(self) -> None:
        """Commit the changes that were taken."""
        assert self.taken is not None, "nothing was taken"
        self.store.write(self.taken)
        self.taken = None
        self.scheduler.committed()

    def fetch(self) -> None:
        """Carry out the requested loads."""
        self.fetched = [(load, self.store.load(load)) for load in self.requested_loads]
        self.requested_loads = []

    def deliver(self, now: int) -> None:
        """Deliver all loaded records in one step."""
        fetched, self.fetched = self.fetched, []
        self.scheduler.deliver(fetched, now)
        loading, self.loading = self.loading, []
        found: dict[Any, Any] = dict(fetched)
        for call, _ in loading:
            self._apply(call, now, found)

    def round(self, now: int) -> None:
        """Do one whole round."""
        self.take()
        self.commit()
        self.fetch()
        self.deliver(now)

    def settle(self, now: int) -> None:
        """Do rounds and ticks until nothing is left to do at now."""
        for _ in range(100):
            self.tick(now)
            wake_at = self.scheduler.next_wake_at()
            is_idle = not (has_pending_work(self.scheduler) or self.unloaded)
            if is_idle and (wake_at is None or wake_at > now):
                return
            self.round(now)
        raise AssertionError("the scheduler does not come to rest")

    # Commands.

    def tick(self, now: int) -> list[Lease]:
        """Let the scheduler handle due entries; return the new leases."""
        self.scheduler.tick(now)
        leases = self.scheduler.take_leases()
        self.leases.update((lease.key, lease) for lease in leases)
        self.stops += self.scheduler.take_stops()
        return leases

    def run(self, now: int) -> list[int]:
        """Settle, and return the ids of the jobs that are running, in order of their start."""
        self.settle(now)
        return [key.job_id for key in self.leases]

    def attach(self, worker: WorkerSpec) -> None:
        """Add a worker."""
        self.send(AttachWorker(worker), T0)

    def submit_all(self, specs: list[JobSpec], now: int = T0) -> list[Accepted | SchedoError]:
        """Submit and make it durable; return the replies, with copies of their jobs."""
        answers: list[Accepted | SchedoError] = []

        def then(call: list[Accepted | SchedoError]) -> None:
            for each in call:
                if isinstance(each, Accepted):
                    each = Accepted(each.job.copy(), each.is_conflict)
                answers.append(each)

        self.send(Submit(specs), now, then)
        self.round(now)
        if self.scheduler._jobs.changes:  # it was accepted only after a load
            self.round(now)
        return answers

    def submit(self, spec: JobSpec, now: int = T0) -> Job:
        """Submit one spec that must be accepted; return a copy of its job."""
        [answer] = self.submit_all([spec], now)
        assert isinstance(answer, Accepted)
        return answer.job

    def send(
        self,
        command: Command[R],
        now: int,
        then: Callable[[R], object] = lambda reply: None,
        refused: Callable[[SchedoError], object] | None = None,
    ) -> None:
        """Apply the command, now or when its records are loaded, and call `then` or `refused`."""
        self._apply(CommandCall(command, then, refused), now, NOTHING_LOADED)

    def _apply(self, call: CommandCall, now: int, loaded: Loaded) -> None:
        before = self._copy_job(call.command, loaded)
        try:
            reply = self.scheduler.apply(call.command, now, loaded)
        except SchedoError as error:
            assert self._copy_job(call.command, loaded) == before, "a refused command changed it"
            if call.refused is None:
                raise
            call.refused(error)
            return
        if isinstance(reply, Needs):
            self.unloaded.append((call, reply))
        else:
            call.then(reply)

    def _copy_job(self, command: Command[Any], loaded: Loaded) -> Job | None:
        if not isinstance(command, JobCommand):
            return None
        job = self.scheduler._jobs.find(command.job_id) or loaded.get(LoadJob(command.job_id))
        return job.copy() if job is not None else None

    def apply(self, command: Command[R], now: int) -> R:
        """Apply the command; do rounds until its records are loaded."""
        replies: list[R] = []
        self.send(command, now, replies.append)
        while not replies:
            self.round(now)
        return replies[0]

    def change(self, command: JobCommand, now: int) -> Job:
        """Apply a command to its job; return a copy of it."""
        return self.apply(command, now).copy()

    def cancel(self, job_id: int, now: int) -> Job:
        return self.change(Cancel(job_id), now)

    def set_queue(self, queue: Queue, now: int = T0) -> None:
        """Configure all limits of the queue."""
        fields = dataclasses.asdict(queue)
        self.send(ConfigureQueue(fields.pop("name"), fields), now)

    def detach(self, worker: str, message: str, now: int) -> list[LeaseKey]:
        """Remove a worker; return the leases that it held."""
        self.scheduler.take_notes()
        self.apply(DetachWorker(worker, message), now)
        return [result.key for result in self.scheduler.take_notes().results]

    def expire_and_trim(self, now: int) -> None:
        """Request expired jobs, as the engine does once a second."""
        self.send(ExpireAndTrim(), now)

    def job(self, job_id: int) -> Job:
        """Return the current record of the job: from memory, else from the store."""
        known = self.scheduler._jobs.find(job_id)
        return known if known is not None else self.store.jobs[job_id]

    def state(self, job_id: int) -> State:
        return self.job(job_id).state

    def report(self, job_id: int, outcome: Outcome, now: int) -> Job:
        """Report how the job's running attempt ended."""
        [key] = [key for key in self.leases if key.job_id == job_id]
        del self.leases[key]
        return self.scheduler.apply(AttemptResult(key, outcome), now)

    def complete(self, job_id: int, now: int) -> Job:
        return self.report(job_id, Completed(b"1"), now)

    def fail(self, job_id: int, now: int) -> Job:
        return self.report(job_id, Failed(OOPS), now)

    # Schedules.

    def put(self, spec: ScheduleSpec, now: int = T0) -> Schedule:
        """Create or change a schedule; return its record."""
        return self.apply(PutSchedule(spec), now)[0]

    def trigger(self, name: str, now: int, overlap: Overlap | None = None) -> Triggered:
        """Trigger a schedule manually."""
        return self.apply(TriggerSchedule(name, overlap), now)

    def runs(self, schedule_id: int) -> list[Job]:
        """Return the jobs a schedule has made, oldest first."""
        known = {job.id: job for job in self.store.jobs.values() if job.schedule_id == schedule_id}
        changed = self.scheduler._jobs.changes.jobs
        known |= {job.id: job for job in changed.values() if job.schedule_id == schedule_id}
        return [known[ident] for ident in sorted(known)]

    def decisions(self, schedule_id: int) -> list[tuple[Decision, int, int]]:
        """Return (decision, scheduled_for, count) of every decision so far."""
        decisions = self.store.decisions + self.scheduler._jobs.changes.decisions
        return [
            (d.decision, d.scheduled_for, d.count)
            for d in decisions
            if d.schedule_id == schedule_id
        ]


def job_in(state: State, server: Server) -> Job:
    """Return a durable job in the state, at 10 s."""
    if state is State.BLOCKED:
        raise AssertionError("only schedules make blocked jobs")
    delay_us = HOUR if state is State.SCHEDULED else 0
    job = server.submit(make_spec(delay_us=delay_us, retry=tries(2), expires_in_us=DAY), T0)
    if state in (State.SCHEDULED, State.QUEUED):
        return job
    if state is State.CANCELLED:
        server.cancel(job.id, T0)
    elif state is State.EXPIRED:
        server.expire_and_trim(DAY)
        server.round(DAY)
    else:
        server.attach(worker_spec())
        server.run(T0)
    if state is State.COMPLETED:
        server.complete(job.id, SECOND)
    elif state is State.RETRYING:
        server.fail(job.id, SECOND)
    elif state is State.FAILED:
        server.report(job.id, Failed(OOPS, retryable=False), SECOND)
    server.detach("other", "", SECOND)
    server.round(10 * SECOND)
    assert server.state(job.id) is state
    return job


def has_pending_work(scheduler: Scheduler) -> bool:
    """Return whether something is to be committed or loaded."""
    return scheduler.has_changes or scheduler.awaits_commit or scheduler.awaits_load


def with_suspects() -> tuple[Server, list[Job]]:
    """Return a server with two poison suspects, of which the worker "far" runs the first."""
    server = Server(slots=2)
    jobs = [server.submit(make_spec()) for _ in range(2)]
    server.run(T0)
    for job in jobs:
        server.report(job.id, Lost(blame=Blame.SHARED), T0)
    server.attach(worker_spec("far", 9, polls=True))
    server.scheduler._workers.poll("far", 9)
    server.run(T0)
    return server, jobs
