"""Remote workers under random commands: no slot is lost, and nothing runs beyond a limit.

The workers keep to the protocol. They poll, report, accept and reject offers, drain, restart with
another description, and break their connections, while an operator cordons them and limits or
pauses queues, and clients submit, invoke and reserve. After every step the scheduler's counts are
compared with a recount of its jobs, and no job may wait that an open poll could get. A failure
names the seed; SEEDS=500 in the environment tries more.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any

import pytest

from schedo.core.commands import (
    Command,
    CommitReservation,
    Cordon,
    Drain,
    Invoke,
    Poll,
    PollBroken,
    ReleaseReservation,
    Reserve,
)
from schedo.core.leases import AttemptResult, Completed, Failed, Lease, Snoozed, Stopped
from schedo.core.model import ONCE, JobSpec, LeaseKey, Options, Queue, ReadyKey
from schedo.core.requirements import Condition, Preference, Requirements
from schedo.core.states import State
from schedo.core.worker_messages import PollResponse
from schedo.core.worker_pool import WorkerSpec
from schedo.errors import SchedoError
from tests.core.builders import SECOND, T0, tries
from tests.core.fake_store import OOPS
from tests.core.remote_site import MILLISECOND, Site, make_poll

SEEDS = int(os.environ.get("SEEDS", "25"))
STEPS = 120
QUEUES = ("p", "q")
TASKS = ("work", "mail")
REQUIREMENTS = (
    *(None, None, None),
    Requirements(resources=(("cpu", 2_000),)),
    Requirements(labels=(Condition("zone", "=", ("x",)),)),
    Requirements(prefer=(Preference((Condition("zone", "=", ("y",)),), 2.0),)),
)
OUTCOMES = (Completed(b"1"), Completed(b"1"), Failed(OOPS), Snoozed(4 * SECOND), Stopped())


class Process:
    """The process of a remote worker."""

    def __init__(self, session: str, spec: WorkerSpec, *, supports_offers: bool) -> None:
        self.session = session
        self.spec = spec
        self.supports_offers = supports_offers
        self.running: dict[LeaseKey, Lease] = {}
        self.offered: dict[LeaseKey, Lease] = {}
        self.accepted: dict[LeaseKey, Lease] = {}
        self.requests: dict[int, dict[str, Any]] = {}  # without a response
        self.is_draining = False

    @property
    def listed(self) -> list[LeaseKey]:
        return [*self.running, *self.accepted, *self.offered]

    @property
    def has_poll(self) -> bool:
        return any(request["max_leases"] for request in self.requests.values())


class World:
    """A site, its worker processes by name, and a source of chance."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.site = Site()
        self.now = T0
        self.processes: dict[str, Process] = {}
        self.begun: set[LeaseKey] = set()
        self.reserved: list[str] = []
        self.count = 0
        self.counts: Counter[str] = Counter()  # of running jobs, by queue and by worker

    def step(self) -> None:
        """Do something, and take the turns that follow."""
        deeds = {
            self.start: 6,
            self.poll: 12,
            self.report: 12,
            self.answer_offer: 6,
            self.break_request: 2,
            self.drain: 1,
            self.submit: 8,
            self.operate: 5,
            self.invoke: 8,
            self.reserve: 3,
            self.use_reservation: 3,
            self.pass_time: 10,
        }
        self.draw.choices([*deeds], [*deeds.values()])[0]()
        self.turn()

    def turn(self) -> None:
        for _ in range(3):
            self.site.turn(self.now)
            for name, process in [*self.processes.items()]:
                for id_ in [each for each in process.requests if each in self.site.replies]:
                    self.receive(name, process, id_)
        self.check()

    # What workers do.

    def any_process(self) -> Process | None:
        return self.draw.choice([*self.processes.values()]) if self.processes else None

    def random_spec(self, name: str) -> WorkerSpec:
        choice = self.draw.choice
        return WorkerSpec(
            name,
            choice((1, 1, 2, 3)),
            choice((None, None, frozenset({"work"}))),
            choice((None, None, frozenset({"p"}))),
            labels=choice(({}, {"zone": "x"}, {"zone": "y"})),
            resources=choice(({}, {"cpu": 2_000}, {"cpu": 4_000})),
        )

    def start(self) -> None:
        """Start a process, which may take the name of one that runs."""
        name = self.draw.choice("abc")
        self.count += 1
        offers = self.draw.random() < 0.5
        process = Process(str(self.count), self.random_spec(name), supports_offers=offers)
        self.processes[name] = process
        self.poll()

    def poll(self) -> None:
        process = self.any_process()
        if process is None or process.has_poll:
            return
        if self.draw.random() < 0.1:
            process.spec = self.random_spec(process.spec.id)
        wait_s = 0.0 if process.accepted else 10.0
        self.send(process, max_leases=process.spec.slots, running=process.listed, wait_s=wait_s)

    def report(self) -> None:
        process = self.any_process()
        if process is not None and process.running:
            key = self.draw.choice([*process.running])
            del process.running[key]
            self.send(process, reports=[AttemptResult(key, self.draw.choice(OUTCOMES))])

    def answer_offer(self) -> None:
        process = self.any_process()
        if process is not None and process.offered:
            key, lease = process.offered.popitem()
            if self.draw.random() < 0.6:
                process.accepted[key] = lease
                self.send(process, accept=[key])
            else:
                self.send(process, reject=[(key, "busy")])

    def break_request(self) -> None:
        process = self.any_process()
        if process is not None and process.requests:
            id_, request = process.requests.popitem()
            for key in request.get("accept", ()):
                process.accepted.pop(key, None)
            self.site.apply(PollBroken(id_, process.spec.id), self.now)

    def drain(self) -> None:
        process = self.any_process()
        if process is not None:
            process.is_draining = True
            self.send(process)

    def send(self, process: Process, **fields: Any) -> None:
        defaults: dict[str, Any] = {"max_leases": 0, "wait_s": 0.0}
        if process.is_draining:
            defaults |= {"is_draining": True, "running": process.listed}
        fields = defaults | fields
        id_ = next(self.site.ids)
        process.requests[id_] = fields
        request = make_poll(
            process.spec.id,
            session=process.session,
            spec=process.spec,
            supports_offers=process.supports_offers,
            **fields,
        )
        self.site.apply(Poll(id_, request), self.now)

    def receive(self, name: str, process: Process, id_: int) -> None:
        request, reply = process.requests.pop(id_), self.site.replies[id_]
        if isinstance(reply, SchedoError):  # another process has taken its name
            return
        process.offered |= {key: lease for key, lease in _by_key(reply) if key in reply.offers}
        begun = {key: lease for key, lease in _by_key(reply) if key not in reply.offers}
        for key in request.get("accept", ()):
            begun |= {key: process.accepted.pop(key)} if key in process.accepted else {}
        assert self.begun.isdisjoint(begun), "an attempt begins twice"
        self.begun.update(begun)
        process.running |= begun
        for key in reply.revoked:
            process.running.pop(key, None)
            process.offered.pop(key, None)
        process.is_draining |= reply.drain
        if process.is_draining and not process.listed:
            self.send(process)
            if self.processes.get(name) is process:
                del self.processes[name]

    # What operators and clients do.

    def attempt(self, command: Command[Any]) -> SchedoError | None:
        try:
            self.site.apply(command, self.now)
        except SchedoError as error:
            return error
        return None

    def operate(self) -> None:
        name = self.draw.choice("abc")
        if self.draw.random() < 0.5:
            limit = self.draw.choice((None, None, 0, 1, 2))
            queue = Queue(self.draw.choice(QUEUES), limit, self.draw.random() < 0.2, weight=2)
            self.site.set_queue(queue, self.now)
        else:
            is_cordon = self.draw.random() < 0.9
            self.attempt(Cordon(name, self.draw.random() < 0.4) if is_cordon else Drain(name))

    def random_key(self) -> ReadyKey:
        choice = self.draw.choice
        return ReadyKey(choice(QUEUES), choice(TASKS), requirements=choice(REQUIREMENTS))

    def random_spec_of_job(self, key: ReadyKey, **options: Any) -> JobSpec:
        requirements = key.requirements
        return JobSpec(
            key.task,
            queue=key.queue,
            priority=self.draw.choice((0, 9)),
            options=Options(requirements=requirements, **options),
        )

    def submit(self) -> None:
        is_once, retry = self.draw.random() < 0.2, self.draw.choice((ONCE, tries(3)))
        spec = self.random_spec_of_job(self.random_key(), at_most_once=is_once, retry=retry)
        self.site.submit_all([spec] * self.draw.choice((1, 3)), self.now)

    def invoke(self) -> None:
        key, count = self.random_key(), self.draw.choice((1, 2, 2, 3))
        expected = self.site.scheduler.dry_run(key, count, self.now).refusal
        spec = self.random_spec_of_job(key, at_most_once=True, retry=ONCE)
        error = self.attempt(Invoke("call", spec, count))
        assert (type(error), str(error)) == (type(expected), str(expected)), "the dry run is wrong"

    def reserve(self) -> None:
        self.count += 1
        ttl_us = self.draw.choice((1, 5)) * SECOND
        command = Reserve(str(self.count), "n", self.random_key(), self.draw.choice((1, 2)), ttl_us)
        if self.attempt(command) is None:
            self.reserved.append(command.id)

    def use_reservation(self) -> None:
        if self.reserved:
            id_ = self.reserved.pop()
            spec = self.random_spec_of_job(ReadyKey("p", "work"), at_most_once=True, retry=ONCE)
            is_commit = self.draw.random() < 0.5
            self.attempt(CommitReservation(id_, "n", spec) if is_commit else _release(id_))

    def pass_time(self) -> None:
        """Take the turns that come due; the workers poll now and then."""
        until = self.now + self.draw.choice((100 * MILLISECOND, SECOND, 20 * SECOND))
        while (wake_at := self.site.scheduler.next_wake_at()) is not None and wake_at <= until:
            self.now = max(self.now, wake_at)
            self.turn()
            if self.draw.random() < 0.5:
                self.poll()  # it arrives in the next turn, as the end of an offer may
        self.now = until

    # What must hold.

    def check(self) -> None:
        scheduler = self.site.scheduler
        ready_queues = scheduler._jobs.ready_queues
        jobs = [*scheduler._jobs._jobs.values()]
        running = [job for job in jobs if job.state is State.RUNNING]
        by_queue = Counter(job.queue for job in running)
        for queue_state in ready_queues.queue_states():
            name, limit = queue_state.queue.name, queue_state.queue.concurrency
            assert queue_state.running == by_queue[name]
            assert limit is None or by_queue[name] <= max(limit, self.counts[name])
        waiting = [
            job.ready_key
            for job in jobs
            if job.state is State.QUEUED and ready_queues.queue_state(job.queue).is_open
        ]
        for worker in scheduler._workers:
            held = {key for key in worker.running if key.job_id > 0}
            assert held == {job.key for job in running if job.worker == worker.spec.id}
            used: Counter[str] = Counter()
            for amounts in worker.running.values():
                used.update(dict(amounts))
            assert used == Counter(worker.used)
            assert len(held) <= max(worker.spec.slots, self.counts[worker.spec.id])
            session = scheduler._session_table.by_name[worker.spec.id]
            if session.waiting is None or worker.is_cordoned or worker.suspects:
                continue
            assert worker.is_open, "a worker that drains has no poll"
            for key in waiting if len(worker.running) < worker.spec.slots else ():
                is_able = worker.spec.serves(key) and worker.fit(key.requirements, 1) > 0
                assert not is_able, "a job waits, and an open poll could get it"
        self.counts = by_queue + Counter(job.worker or "" for job in running)


def _by_key(response: PollResponse) -> list[tuple[LeaseKey, Lease]]:
    return [(lease.key, lease) for lease in response.leases]


def _release(id_: str) -> ReleaseReservation:
    return ReleaseReservation(id_, "n")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_slot_is_lost_and_no_limit_exceeded(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
