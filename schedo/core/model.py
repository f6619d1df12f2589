"""The data model: jobs, schedules, queues and their options.

Plain data with a few derived values. Instants end in `_at` and durations in `_us`. Instants are
integer microseconds UTC of the wall clock. The elapsed timeline continues evenly when the wall
clock is set, and the offset is the wall clock minus the elapsed timeline. An instant that counts
elapsed time moves with the offset. Payloads and results are JSON text as bytes, not interpreted.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import msgspec

from schedo.core import limits
from schedo.core.keep import KeepTimes
from schedo.core.queue_pause import QueuePause
from schedo.core.requirements import Requirements
from schedo.core.states import FINAL, TIMED, State

BackoffKind = Literal["exponential", "fixed", "ladder"]


class Retry(msgspec.Struct, frozen=True, omit_defaults=True):
    """The retry policy of a job. `max_attempts` counts failures only."""

    max_attempts: int = 5
    backoff: BackoffKind = "exponential"
    initial_us: int = 2 * limits.SECOND
    factor: float = 3.0
    max_us: int = limits.HOUR
    jitter: float = 0.2
    ladder_us: tuple[int, ...] = ()
    until_at: int | None = None  # no retry is due at or after this instant


ONCE = Retry(max_attempts=1)


class Unique(msgspec.Struct, frozen=True, omit_defaults=True):
    """A unique key. A job holds it while in one of the states, or until created_at + for_us."""

    key: str
    states: tuple[str, ...] = ("scheduled", "blocked", "queued", "running", "retrying")
    for_us: int | None = None
    on_conflict: Literal["return", "reject", "replace"] = "return"


class Options(msgspec.Struct, frozen=True, omit_defaults=True):
    """The options of a job that are seldom set. Jobs with equal options can share one object."""

    retry: Retry | None = None  # None: the task's default, filled in when the job is accepted
    timeout_us: int | None = None
    at_most_once: bool | None = None  # None: the task's default, or else False
    unique: Unique | None = None
    tags: tuple[str, ...] = ()
    meta: dict[str, Any] | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    requirements: Requirements | None = None
    on_failure: OnFailure | None = None  # the job that a final failure makes
    keep: KeepTimes | None = None
    schedule: str | None = None  # the name of the schedule whose run the job is


PLAIN = Options()


class Trigger(StrEnum):
    """Why a job exists."""

    SUBMIT = "submit"
    SCHEDULE = "schedule"
    CATCHUP = "catchup"
    MANUAL = "manual"
    INVOKE = "invoke"  # placed right now, or refused
    ON_FAILURE = "on_failure"  # of another job
    ON_MISS = "on_miss"  # of an expectation
    ON_BACK = "on_back"


class Location(IntEnum):
    """The index or worker that holds the record of a job in memory."""

    NOWHERE = 0
    TIMERS = 1
    READY = 2
    RUNNING = 3
    HELD_BACK = 4  # ready, but a worker of the previous server may run it


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an attempt failed. The store and the API hold it as JSON."""

    type: str  # "exit-code", "timeout", "http-status", "lost" ..., or an exception's name
    message: str
    exit_code: int | None = None
    signal: str | None = None
    http_status: int | None = None
    traceback: str | None = None


class ReadyKey(NamedTuple):
    """What the jobs of one ready index have in common. The same workers can run all of them."""

    queue: str
    task: str
    isolated: bool = False  # poison suspects run on isolated workers
    requirements: Requirements | None = None


class LeaseKey(NamedTuple):
    """The permanent identity of one attempt. A result with the key of an ended one is stale."""

    job_id: int
    attempt: int
    epoch: int


@dataclass(slots=True)
class Job:
    """One job. Records are recycled, so code that outlives a turn must keep the id instead."""

    id: int = 0
    task: str = ""
    queue: str = limits.DEFAULT_QUEUE
    payload: bytes | None = b"null"  # None: it is large and in the store only
    priority: int = 0
    options: Options = PLAIN
    state: State = State.SCHEDULED
    created_at: int = 0
    due_at: int = 0  # scheduled_at on the wire; moves with retries and snoozes
    # due_at on the elapsed timeline minus priority times the queue's priority_step. The smallest
    # rank runs first. The elapsed timeline keeps the order of queued jobs when the clock is set.
    rank: int = 0
    picked_at: int | None = None
    started_at: int | None = None
    ended_at: int | None = None
    attempt: int = 0  # the number of the latest attempt, never reused
    failures: int = 0
    losses: int = 0
    epoch: int = 0
    worker: str | None = None
    schedule_id: int | None = None
    scheduled_for: int | None = None
    trigger: Trigger = Trigger.SUBMIT
    missed_count: int = 0
    unique_key: str | None = None
    expires_at: int | None = None
    cancel_requested_at: int | None = None
    result: bytes | None = None
    failure: Failure | None = None
    due_elapsed: bool = False  # due_at counts elapsed time, until an attempt starts
    expires_elapsed: bool = False  # expires_at counts elapsed time
    offset_us: int = 0  # the offset when the job was created
    kept_until: int | None = None  # of an ended job; None: the general retention decides

    # Memory only.
    is_new: bool = False  # the store has no row of it yet
    location: Location = Location.NOWHERE
    poison_suspect: bool = False  # its worker died while other jobs ran there too
    counted: State | None = field(default=None, compare=False)  # see WaitingCounts

    @property
    def is_final(self) -> bool:
        return self.state in FINAL

    @property
    def ready_key(self) -> ReadyKey:
        return _ready_key(self.queue, self.task, self.poison_suspect, self.options.requirements)

    @property
    def key(self) -> LeaseKey:
        """The lease key of the latest attempt."""
        return LeaseKey(self.id, self.attempt, self.epoch)

    def shift(self, delta_us: int) -> None:
        """Shift the instants that count elapsed time by delta_us."""
        if self.due_elapsed:
            self.due_at += delta_us
        elif self.state in TIMED:
            self.rank -= delta_us  # the instant stays, and comes earlier or later than it would
        if self.expires_elapsed and self.expires_at is not None:
            self.expires_at += delta_us

    def copy(self) -> Job:
        """Return a copy that later turns do not change."""
        return Job(*_read_all(self))


_ready_key = lru_cache(maxsize=4_096)(ReadyKey)  # thousands of jobs share a few keys
_read_all = attrgetter(*(each.name for each in dataclasses.fields(Job)))


class JobSpec(msgspec.Struct, frozen=True, gc=False):
    """A submitted job, validated and with the defaults of its fields."""

    task: str
    payload: bytes = b"null"
    queue: str = limits.DEFAULT_QUEUE
    priority: int = 0
    run_at: int | None = None  # an instant; None: delay_us applies
    delay_us: int = 0  # after the job is accepted
    expires_at: int | None = None
    expires_in_us: int | None = None
    options: Options = PLAIN


class OnFailure(JobSpec, frozen=True, omit_defaults=True):
    """The event job of a final failure; the facts are added to its payload."""


class Expect(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is expected of a schedule's runs, or of work outside, and the event jobs.

    within_us: how long after each instant a run of it must have completed.
    max_duration_us: how long an attempt may run.
    """

    within_us: int | None = None
    max_duration_us: int | None = None
    on_miss: OnFailure | None = None  # made when it is no longer met
    on_back: OnFailure | None = None  # made when it is met again


class Overlap(StrEnum):
    """What a schedule does when it fires while a run of it has not ended."""

    SKIP = "skip"
    ALLOW = "allow"
    BUFFER_ONE = "buffer_one"
    CANCEL_OTHER = "cancel_other"


class Catchup(StrEnum):
    """What a schedule does about instants that passed while no server could fire them."""

    LATEST = "latest"
    ALL = "all"
    SKIP = "skip"


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rule of a schedule: exactly one of cron, every_us and at."""

    cron: str | None = None  # normalized: 5 or 6 fields (seconds first), H expanded
    tz: str = "UTC"
    gap: Literal["after", "skip"] = "after"
    fold: Literal["first", "last", "both"] = "first"
    every_us: int | None = None
    at: int | None = None
    start_at: int | None = None
    end_at: int | None = None
    jitter_us: int = 0
    phase_us: int = 0  # how far the instants of every_us have moved; see Schedule


class ScheduleSpec(msgspec.Struct, frozen=True):
    """A schedule as the client defines it, validated and with defaults."""

    name: str
    rule: Rule
    job: JobSpec
    cron_source: str | None = None  # the expression as the user wrote it
    overlap: Overlap = Overlap.SKIP
    catchup: Catchup = Catchup.LATEST
    catchup_window_us: int = limits.CATCHUP_WINDOW_US
    catchup_max: int = limits.CATCHUP_MAX
    paused: bool = False
    expect: Expect | None = None


# The owner of a schedule that no code and no file declares.
BY_HAND = "api"


@dataclass(slots=True)
class Schedule:
    """A schedule with its spec, its watermark and its counters."""

    id: int
    spec: ScheduleSpec
    created_at: int
    updated_at: int
    evaluated_through: int  # every instant up to here has its decision
    next_fire_at: int | None
    paused: bool = False
    note: str | None = None  # why it is paused
    fired: int = 0
    missed: int = 0
    overlap_skipped: int = 0
    buffered: int = 0
    last_fired_at: int | None = None
    last_job_id: int | None = None
    phase_us: int = 0  # sum of clock changes since its interval began to count
    owner: str = BY_HAND  # what declares it, as in "code:shop:app"
    declared: ScheduleSpec | None = None  # its owner's spec, if it was changed by hand since

    # Memory only: the runs that have not ended, oldest first, at most ACTIVE_RUNS_KNOWN_MAX.
    active: list[int] = field(default_factory=list)
    blocked: int | None = None  # the active run that waits for the others

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def rule(self) -> Rule:
        """The rule of the spec, with the current phase."""
        if self.phase_us == 0:
            return self.spec.rule
        return msgspec.structs.replace(self.spec.rule, phase_us=self.phase_us)

    @property
    def counts_elapsed(self) -> bool:
        """Whether its instants count elapsed time, as those of an interval do after start_at."""
        rule = self.spec.rule
        if rule.every_us is None:
            return False
        return rule.start_at is None or self.evaluated_through - self.phase_us >= rule.start_at

    def shift(self, delta_us: int) -> None:
        """Shift its instants by delta_us if they count elapsed time."""
        if self.counts_elapsed:
            self.phase_us += delta_us
            self.evaluated_through += delta_us
            if self.next_fire_at is not None:
                self.next_fire_at += delta_us

    def copy(self) -> Schedule:
        """Return a copy that later turns do not change."""
        return dataclasses.replace(self, active=list(self.active))


class Decision(StrEnum):
    """The decision about one due instant of a schedule."""

    FIRED = "fired"
    CAUGHT_UP = "caught_up"
    COALESCED = "coalesced"  # a later run stands for this instant
    MISSED = "missed"  # skipped by the catch-up policy
    SKIPPED_OVERLAP = "skipped_overlap"
    BUFFERED = "buffered"
    MANUAL = "manual"
    PAUSED = "paused"  # it passed while the schedule was paused
    EXPECTATION_MISSED = "expectation_missed"  # in addition to another decision
    EXPECTATION_BACK = "expectation_back"


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """One stored decision about `count` instants, of which `scheduled_for` is the last."""

    schedule_id: int
    scheduled_for: int
    decided_at: int
    decision: Decision
    job_id: int | None = None
    count: int = 1


class PauseScope(StrEnum):
    """What a pause of the whole server stops."""

    STARTS = "starts"
    SCHEDULES = "schedules"


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of the whole server; until: the instant at which it ends by itself."""

    scope: PauseScope
    since: int
    note: str | None = None
    until: int | None = None


@dataclass(slots=True)
class Queue:
    """A queue and its limits. A queue that was never configured has the defaults and no row."""

    name: str
    concurrency: int | None = None  # jobs running at once; None: unlimited
    paused: bool = False
    weight: int = 1  # share of the starts when several queues have jobs
    priority_step_us: int = limits.PRIORITY_STEP_US
    keep: KeepTimes | None = None  # for jobs that do not say it themselves
    pause: QueuePause | None = None

    def changed(self, **fields: Any) -> Queue:
        """Return the queue with some fields changed."""
        return dataclasses.replace(self, **fields)
