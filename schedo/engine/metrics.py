"""The engine's counters and histograms; their numbers only go up.

Durations are microseconds, in buckets from 50 µs to 10 s. Nothing here is kept per job. The first
QUEUES_NAMED_MAX queues are measured by name, all others together as "other", so that clients cannot
grow this by inventing names. Two histograms measure the start of attempts:

- start_delay, per queue: from the due instant to the dispatch, whatever the job waited for (a slot,
  a pause, its commit, the previous run). A retry is due at the end of its delay.
- start_lateness, all queues: the same, but only for jobs that found a slot at once, in the turn in
  which their timer fired or their commit made them runnable. This is schedo's own part. It is
  measured apart for timers (schedules, delays and retries) and for jobs that were due when they
  were submitted, whose lateness includes a commit.
- Both leave out starts that no server could have made in time: jobs that were due before this
  server started, caught-up runs, and attempts that continue after a lost worker or a drain.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence, Set

from schedo.core.changes import Changes
from schedo.core.lateness import DURATION_BOUNDS_US, START_KINDS
from schedo.core.leases import Lease
from schedo.core.limits import REQUEUE_BOOST_US
from schedo.core.model import Decision, JobSpec, Trigger
from schedo.core.scheduler import Scheduler
from schedo.core.states import FINAL

BATCH_BOUNDS_JOBS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)

# Each queue has two histograms and six gauges: all series together stay below 1,000.
QUEUES_NAMED_MAX = 16
OTHER_QUEUES = "other"

# An attribute access on the class costs as much as the rest of a comparison.
_CATCHUP, _SCHEDULE = Trigger.CATCHUP, Trigger.SCHEDULE

_UNSUCCESSFUL = ("failed", "timeout", "snoozed", "released", "cancelled", "lost", "stale")


class Histogram:
    """The number of observations in each bucket; a bound belongs to the bucket below it."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[int, ...] = DURATION_BOUNDS_US) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0

    def observe(self, value: int) -> None:
        """Count a value; a negative value, after the clock was set back, counts as zero."""
        if value < 0:
            value = 0
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def observe_many(self, value: int, times: int) -> None:
        """Count the same value several times."""
        value = max(value, 0)
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


class QueueTimes:
    """The histograms of one queue."""

    __slots__ = ("commit_wait", "start_delay")

    def __init__(self) -> None:
        self.start_delay = Histogram()
        self.commit_wait = Histogram()


class Metrics:
    """All counters and histograms of one run of a server."""

    def __init__(self) -> None:
        self.began_at = 0
        self.queues: dict[str, QueueTimes] = {}
        self.start_lateness = {kind: Histogram() for kind in START_KINDS}
        self.loop_lag = Histogram()
        self.commit_time = Histogram()
        self.commit_jobs = Histogram(BATCH_BOUNDS_JOBS)
        self.starts = 0
        self.clock_steps = 0
        self.ended: dict[str, int] = dict.fromkeys(sorted(FINAL), 0)  # jobs; see engine/ends.py
        self.unsuccessful = dict.fromkeys(_UNSUCCESSFUL, 0)  # attempts by outcome
        self.decisions = {decision.value: 0 for decision in Decision}
        self.listeners: list[Callable[[Changes], None]] = []  # get the changes of each commit

    def name_queue(self, queue: str) -> str:
        """Return the name under which the queue is measured."""
        if queue in self.queues or len(self.queues) < QUEUES_NAMED_MAX:
            return queue
        return OTHER_QUEUES

    def queue(self, queue: str) -> QueueTimes:
        """Return the histograms of the queue, or of "other" if it is not measured by name."""
        times = self.queues.get(queue)
        if times is None:
            times = self.queues.setdefault(self.name_queue(queue), QueueTimes())
        return times

    def note_submit(self, specs: Sequence[JobSpec], wait_us: int) -> None:
        """Count jobs that were submitted and committed together; `wait_us`: until the response."""
        if len(specs) == 1:
            self.queue(specs[0].queue).commit_wait.observe(wait_us)
            return
        for queue, count in Counter([spec.queue for spec in specs]).items():
            self.queue(queue).commit_wait.observe_many(wait_us, count)

    def note_starts(
        self,
        leases: Sequence[Lease],
        scheduler: Scheduler,
        ready: Set[int],
        now: int,
    ) -> None:
        """Count dispatched attempts; `ready`: jobs that found a slot at once."""
        self.starts += len(leases)
        find, began_at, offset_us = scheduler.find_job, self.began_at, scheduler.offset_us
        # How many jobs of each queue, kind and due instant start, those that found a slot at once
        # apart: the jobs of a batch are alike.
        alike: dict[tuple[str, str, int, bool], int] = {}
        for lease in leases:
            job = find(lease.key.job_id)
            if job is None or job.trigger is _CATCHUP:
                continue
            due_at, kind = job.due_at, "timer"
            # A client may submit a job with a past due time: it is late from its creation. A run
            # of a schedule is late from its instant.
            if due_at <= job.created_at and job.trigger is not _SCHEDULE:
                due_at, kind = job.created_at, "submit"
            if due_at < began_at or job.rank == job.due_at - offset_us - REQUEUE_BOOST_US:
                continue
            start = job.queue, kind, due_at, job.id in ready
            alike[start] = alike.get(start, 0) + 1
        for (queue, kind, due_at, is_ready), count in alike.items():
            self.queue(queue).start_delay.observe_many(now - due_at, count)
            if is_ready:
                self.start_lateness[kind].observe_many(now - due_at, count)

    def note_commit(self, changes: Changes, time_us: int) -> None:
        """Count the changes of a commit; `time_us`: how long it took."""
        self.commit_time.observe(time_us)
        self.commit_jobs.observe(len(changes.jobs))
        for attempt in changes.attempts:
            self.unsuccessful[attempt.outcome] = self.unsuccessful.get(attempt.outcome, 0) + 1
        for decision in changes.decisions:
            self.decisions[decision.decision.value] += decision.count
        for listen in self.listeners:
            listen(changes)
