"""The scheduler under random commands, times, commits, loads and crashes.

Indexes hold two entries, so nearly every job passes through the store. Commits and loads happen in
steps of their own, so that changes come between them. After every step the invariants are checked;
at the end all that was acknowledged must come to its end. A failure prints the steps to replay it;
EXAMPLES=2000 in the environment tries more.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from schedo.core import leases
from schedo.core.commands import (
    Accepted,
    Cancel,
    DeleteSchedule,
    PauseSchedule,
    PutEffect,
    PutSchedule,
    Reschedule,
    ResumeSchedule,
    RetryJob,
    RunNow,
    Submit,
    TriggerSchedule,
)
from schedo.core.leases import AttemptResult, Blame, Completed, Failed, Lost, Released, Stopped
from schedo.core.model import (
    Catchup,
    Job,
    JobSpec,
    LeaseKey,
    Overlap,
    Queue,
    Rule,
    Schedule,
    ScheduleSpec,
    Trigger,
    Unique,
)
from schedo.errors import DuplicateKey, IllegalTransition, SchedoError, StaleLease
from tests.core.builders import (
    DAY,
    SECOND,
    every,
    make_schedule_spec,
    make_spec,
    tries,
    worker_spec,
)
from tests.core.fake_store import OOPS
from tests.core.invariants import check
from tests.core.server import Server, has_pending_work

CAPACITY = 2
TASKS = ("a", "b")
QUEUES = ("p", "q")
WORKER = "w"
KEPT = worker_spec("kept", 1, isolated=True)  # for poison suspects

UNIQUES = st.builds(
    Unique,
    st.sampled_from(["k1", "k2"]),
    for_us=st.sampled_from([None, 20 * SECOND]),
    on_conflict=st.sampled_from(["return", "reject", "replace"]),
)
SPECS = st.builds(
    make_spec,
    st.sampled_from(TASKS),
    queue=st.sampled_from(QUEUES),
    priority=st.sampled_from([-9, 0, 0, 9]),
    delay_us=st.sampled_from([0, 0, 3 * SECOND, 7 * SECOND, 40 * SECOND]),
    expires_in_us=st.sampled_from([None, None, 10 * SECOND]),
    retry=st.sampled_from([None, tries(1), tries(3)]),
    timeout_us=st.sampled_from([None, 5 * SECOND]),
    at_most_once=st.sampled_from([False, False, True]),
    unique=st.one_of(st.none(), st.none(), UNIQUES),
)
RULES = st.builds(
    every,
    st.sampled_from([5, 7, 20]),
    start_at=st.sampled_from([None, None, 1_030 * SECOND]),
    end_at=st.sampled_from([None, None, 1_200 * SECOND]),
)
SCHEDULES = st.builds(
    make_schedule_spec,
    st.sampled_from(["s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9"]),
    st.one_of(RULES, RULES, st.just(Rule(cron="*/10 * * * * *"))),
    job=SPECS.filter(lambda spec: spec.options.unique is None),
    overlap=st.sampled_from(Overlap),
    catchup=st.sampled_from(Catchup),
    catchup_max=st.sampled_from([1, 3]),
    paused=st.sampled_from([False, False, False, True]),
)
OUTCOMES = st.sampled_from(
    [
        Completed(b"1"),
        Completed(b"1"),
        Failed(OOPS),
        Failed(OOPS, retryable=False),
        leases.Snoozed(4 * SECOND),
        Stopped(),
        Released(),
        Lost("gone"),
        Lost("gone", Blame.SHARED),
        Lost("gone", Blame.NONE),
    ]
)
ANY = st.integers(0, 1_000_000)  # chooses one of the existing records


class SchedulerMachine(RuleBasedStateMachine):
    """The scheduler, its store, and the replies that clients have received."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.latest_now = 1_000 * SECOND
        self.server = Server(CAPACITY, now=self.now, slots=3)
        self.server.attach(KEPT)
        self.answered: set[int] = set()  # jobs whose reply waits for the next commit
        self.answering: set[int] = set()  # for the commit under way
        self.acknowledged: set[int] = set()
        self.latest: dict[int, tuple[int, int]] = {}  # job: epoch and attempt of its last lease
        self.old_keys: list[LeaseKey] = []
        self.finals: dict[int, tuple[Any, ...]] = {}
        self.retried: set[int] = set()
        self.attempts: Counter[int] = Counter()

    # The random actions.

    @initialize(
        specs=st.lists(SPECS, max_size=20),
        schedules=st.lists(SCHEDULES, max_size=6),
        crashes=st.booleans(),
    )
    def begin(self, specs: list[JobSpec], schedules: list[ScheduleSpec], crashes: bool) -> None:
        self.submit(specs)
        for spec in schedules:
            self.put_schedule(spec)
        for _ in range(4):
            self.do_a_round()
        if crashes:  # so that it begins with empty indexes
            self.crash()

    @rule(specs=st.lists(SPECS, min_size=1, max_size=6))
    def submit(self, specs: list[JobSpec]) -> None:
        def then(answers: list[Accepted | SchedoError]) -> None:
            assert len(answers) == len(specs)
            for spec, answer in zip(specs, answers, strict=True):
                if isinstance(answer, Accepted):
                    assert answer.job.id, "the answer is a recycled record"
                    assert answer.is_conflict or answer.job.created_at == self.now
                    self.answered.add(answer.job.id)
                else:
                    assert isinstance(answer, DuplicateKey)
                    assert spec.options.unique is not None

        self.server.send(Submit(specs), self.now, then)

    @rule(seconds=st.sampled_from([0, 1, 3, 10, 70]))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds * SECOND
        self.latest_now = max(self.now, self.latest_now)
        self.tick()

    @rule(seconds=st.sampled_from([-20, 20]))
    def step_the_clock(self, seconds: int) -> None:
        while self.server.taken is not None or self.server.requested_loads or self.server.fetched:
            self.step_the_journal(1)
        self.now += seconds * SECOND
        self.latest_now = max(self.now, self.latest_now)  # what was due stays due
        self.server.follow_clock(seconds * SECOND)

    @rule(which=ANY, outcome=OUTCOMES)
    @precondition(lambda self: self.server.leases)
    def report(self, which: int, outcome: Any) -> None:
        key = list(self.server.leases)[which % len(self.server.leases)]
        del self.server.leases[key]
        self.old_keys.append(key)
        self.server.scheduler.apply(AttemptResult(key, outcome), self.now)

    @rule(which=ANY)
    @precondition(lambda self: self.old_keys)
    def report_again(self, which: int) -> None:
        key = self.old_keys[which % len(self.old_keys)]
        before = self.server.job(key.job_id).copy()
        try:
            self.server.scheduler.apply(AttemptResult(key, Completed(b"2")), self.now)
        except StaleLease:
            assert self.server.job(key.job_id) == before
            return
        raise AssertionError("a stale result was accepted")

    @rule(which=ANY, verb=st.sampled_from(["cancel", "retry", "run_now", "later", "now", "rank"]))
    @precondition(lambda self: self.acknowledged)
    def change(self, which: int, verb: str) -> None:
        job_id = sorted(self.acknowledged)[which % len(self.acknowledged)]

        def refused(error: SchedoError) -> None:
            assert isinstance(error, IllegalTransition), "an acknowledged job is missing"

        def retried(job: Job) -> None:
            self.retried.add(job.id)

        server, now = self.server, self.now
        match verb:
            case "cancel":
                server.send(Cancel(job_id), now, refused=refused)
            case "retry":
                server.send(RetryJob(job_id), now, retried, refused)
            case "run_now":
                server.send(RunNow(job_id), now, refused=refused)
            case "later":
                server.send(Reschedule(job_id, due_at=now + 6 * SECOND), now, refused=refused)
            case "now":
                server.send(Reschedule(job_id, due_at=now, priority=9), now, refused=refused)
            case _:
                server.send(Reschedule(job_id, priority=-9), now, refused=refused)

    @rule(
        name=st.sampled_from(QUEUES),
        concurrency=st.sampled_from([None, 1]),
        paused=st.sampled_from([False, False, True]),
    )
    def set_queue(self, name: str, concurrency: int | None, paused: bool) -> None:
        self.server.set_queue(Queue(name, concurrency, paused, weight=2))

    @rule()
    def lose_the_worker(self) -> None:
        lost = self.server.detach(WORKER, "gone", self.now)
        for key in lost:
            self.old_keys.append(key)
            self.server.leases.pop(key, None)

    @rule(slots=st.sampled_from([1, 3]), tasks=st.sampled_from([None, frozenset({"a"})]))
    def attach_the_worker(self, slots: int, tasks: frozenset[str] | None) -> None:
        self.server.attach(worker_spec(WORKER, slots, tasks=tasks))
        self.tick()

    @rule()
    def sweep(self) -> None:
        self.server.expire_and_trim(self.now)

    @rule(spec=SCHEDULES)
    def put_schedule(self, spec: ScheduleSpec) -> None:
        self.server.send(PutSchedule(spec), self.now)

    @rule(
        which=ANY,
        verb=st.sampled_from(["pause", "resume", "resume from", "delete", "trigger", "put again"]),
        overlap=st.sampled_from([None, *Overlap]),
    )
    @precondition(lambda self: self.server.store.schedules)
    def change_schedule(self, which: int, verb: str, overlap: Overlap | None) -> None:
        known = sorted(self.server.store.schedules.values(), key=lambda each: each.name)
        schedule = known[which % len(known)]
        name, now = schedule.name, self.now

        def put(reply: tuple[Schedule, PutEffect]) -> None:
            assert reply[0].name == name

        send = partial(self.server.send, now=now, refused=lambda error: None)  # it was deleted
        match verb:
            case "pause":
                send(PauseSchedule(name, "for a while"))
            case "resume":
                send(ResumeSchedule(name))
            case "resume from":
                send(ResumeSchedule(name, now - 100 * SECOND))
            case "delete":
                send(DeleteSchedule(name))
            case "trigger":
                send(TriggerSchedule(name, overlap))
            case _:
                send(PutSchedule(schedule.spec), then=put)

    # Time and the committer.

    @rule(steps=st.integers(1, 4))
    def step_the_journal(self, steps: int) -> None:
        server = self.server
        for _ in range(steps):
            if server.taken is not None:
                self.commit()
            elif server.requested_loads:
                server.fetch()
            elif server.fetched:
                server.deliver(self.now)
            else:
                self.take()

    @rule()
    def do_a_round(self) -> None:
        server = self.server
        if server.taken is None and not server.requested_loads and not server.fetched:
            self.take()
        if server.taken is not None:
            self.commit()
        server.fetched += [(load, server.store.load(load)) for load in server.requested_loads]
        server.requested_loads = []
        server.deliver(self.now)
        self.tick()

    def take(self) -> None:
        self.answering, self.answered = self.answered, set()
        self.server.take()

    def commit(self) -> None:
        self.server.commit()
        self.acknowledged |= self.answering
        self.answering = set()
        for job in self.server.store.jobs.values():
            assert job.attempt >= self.attempts[job.id], "attempts only grow"
            self.attempts[job.id] = job.attempt
            if job.trigger is not Trigger.SUBMIT:
                self.acknowledged.add(job.id)
            ending = (job.state, job.ended_at, job.result, job.failure, job.attempt)
            if job.id in self.retried:
                continue
            if job.is_final:
                assert self.finals.setdefault(job.id, ending) == ending, "an ended job changed"
            else:
                assert job.id not in self.finals, "an ended job came back to life"

    def tick(self) -> None:
        store, memory = self.server.store, self.server.scheduler._jobs
        before = set(self.server.scheduler.unsent)
        sent = {lease.key for lease in self.server.tick(self.now)}
        for key in (sent | self.server.scheduler.unsent) - before:  # what has just been started
            job = memory.find(key.job_id)
            assert job is not None
            assert job.due_at <= self.latest_now, "a job started before its time"
            assert (key.epoch, key.attempt) > self.latest.get(job.id, (0, 0)), "a lease came twice"
            assert job.id in store.jobs, "a job runs that is not durable"
            self.latest[job.id] = (key.epoch, key.attempt)
            line = memory.ready_queues.queue_state(job.queue)
            assert not line.queue.paused
            assert line.queue.concurrency is None or line.running <= line.queue.concurrency
        live = [key.job_id for key in self.server.leases]
        assert len(live) == len(set(live)), "a job has two live leases"

    @rule(recovers=st.booleans())
    def crash(self, recovers: bool = False) -> None:
        self.old_keys += self.server.leases
        self.answered, self.answering = set(), set()
        self.server.crash(self.now)
        self.server.attach(worker_spec(WORKER, 3))
        self.server.attach(KEPT)
        if recovers:
            self.do_a_round()

    @invariant()
    def everything_holds(self) -> None:
        check(self.server)

    # The end: every acknowledged job ends.

    def teardown(self) -> None:
        scheduler = self.server.scheduler
        for name in QUEUES:
            self.server.set_queue(Queue(name))
        self.server.attach(worker_spec(WORKER, 50))
        for _ in range(4):  # requests under way arrive
            self.do_a_round()
        for schedule in self.server.store.schedules.values():
            self.server.send(PauseSchedule(schedule.name), self.now, refused=lambda error: None)
        for _ in range(60):
            self.now += DAY
            self.latest_now = self.now
            self.do_a_round()
            for key in list(self.server.leases):
                scheduler.apply(AttemptResult(key, Completed(b"1")), self.now)
                del self.server.leases[key]
            if not has_pending_work(scheduler) and not self.server.store.unfinished():
                break
        left = self.server.store.unfinished()
        assert not left, f"{len(left)} jobs never end: {[(j.id, j.state) for j in left[:5]]}"
        wake_at = scheduler.next_wake_at()
        assert wake_at is None or wake_at > self.now
        for job_id in self.acknowledged:
            assert self.server.store.jobs[job_id].is_final


SchedulerMachine.TestCase.settings = settings(
    max_examples=int(os.environ.get("EXAMPLES", "60")), stateful_step_count=50
)
TestSchedulerModel = SchedulerMachine.TestCase
