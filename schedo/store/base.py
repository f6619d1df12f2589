"""The interface of a store; tests/store/contract.py checks every promise on each store.

There are two kinds of calls:
- Those of Store run one after the other, in the order of the calls, on the one connection that
  writes. A load sees every earlier commit, and the core's later changes win over what it loads.
- Those of Reader run concurrently on a read-only connection. They see every commit that returned
  before the call, and never block a writer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, Protocol

from schedo.core.action_log import LogFilter, NumberedEntry
from schedo.core.bulk import BulkOperation
from schedo.core.bulk_undo import BulkStep
from schedo.core.changes import AttemptRecord, Changes, IdempotencyRecord
from schedo.core.cordoned_worker import CordonedWorker
from schedo.core.expectations import Expectation
from schedo.core.job_filter import JobFilter, Order
from schedo.core.loads import Load
from schedo.core.model import Job, Pause, Queue, ReadyKey, Rule, Schedule
from schedo.core.paged_index import Pair
from schedo.core.run_history import RunHistory, ScheduleStatus
from schedo.core.schedule_filter import ANY_SCHEDULE, ScheduleCounts, ScheduleFilter
from schedo.core.states import State
from schedo.store.pages import DecisionPage, IdPage, JobPage, SchedulePage

if TYPE_CHECKING:
    from schedo.core.tallies import Dimension, HourTallies, Period
    from schedo.store.database_health import DatabaseHealth


class ClockMark(NamedTuple):
    """The state of the previous server's wall clock; see engine/clock_changes.py."""

    offset_us: int = 0  # the wall clock minus the elapsed timeline
    base_us: int = 0  # the wall clock minus the time since the machine started
    boot: int = 0  # identifies that start of the machine
    seen_at: int = 0  # the newest instant of the elapsed timeline in the store
    set_at: int = 0  # the instant of the elapsed timeline when the clock was set last


NO_MARK = ClockMark()
RUNNING_PAGE = 1_000  # running jobs that a recovery reads at once


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The part of a store that a server needs before its first turn."""

    epoch: int  # larger than every earlier epoch, already durable
    last_id: int  # no id in use is larger, and no schedule has decided on an instant after it
    queues: list[Queue]
    ready_keys: list[ReadyKey]  # those with queued jobs
    has_blocked: bool  # a run of a schedule is blocked
    was_killed: bool = False  # the previous server died, and its host still runs
    clock: ClockMark = NO_MARK
    pauses: Sequence[Pause] = ()
    cordons: Sequence[CordonedWorker] = ()
    bulk_operations: Sequence[BulkOperation] = ()
    expectations: Sequence[Expectation] = ()
    store_id: int = 0  # a random number; two stores differ in it
    slot: int = 0  # of the ids that the server makes; see core/ids.py
    # The first RUNNING_PAGE running jobs by id, if the store has read them with the rest.
    running: list[Job] | None = None


@dataclass(frozen=True, slots=True)
class Retention:
    """How long ended jobs without a `kept_until` are kept; the defaults are those of River."""

    completed_us: int = 86_400_000_000  # 24 hours
    cancelled_us: int = 86_400_000_000  # also expired
    failed_us: int = 7 * 86_400_000_000
    idempotency_us: int = 86_400_000_000  # the records that make a repeated request safe
    schedule_runs: int = 100  # the last ended runs of each schedule are kept for longer


class OutputSize(NamedTuple):
    """The size of a captured stream, in bytes."""

    attempt: int
    stream: str
    head: int
    tail: int
    total: int  # written by the attempt; head and tail may be less


class OutputPiece(NamedTuple):
    """A range of bytes of a captured stream."""

    attempt: int
    stream: str
    part: Literal["head", "tail"]
    at: int
    length: int


class ScheduleRule(NamedTuple):
    """The rule of a schedule, with its current phase."""

    id: int
    name: str
    rule: Rule


class StoredNames(NamedTuple):
    """Names that the store knows, each list in order."""

    schedules: list[str]
    tags: list[str]


# The numbers of waiting jobs by queue and state.
Waiting = dict[str, dict[State, int]]


class Reader(Protocol):
    """The reads of the API and the commands; they run concurrently with commits."""

    async def get_job(self, job_id: int) -> Job | None:
        """Return the job with its whole payload, or None."""

    async def list_jobs(
        self, which: JobFilter, after: int | None, limit: int, order: Order = Order.NEWEST
    ) -> JobPage[int]:
        """Return up to `limit` jobs that come after the id in this order.

        The page may have fewer jobs, or none, although the list continues: a store looks at a
        bounded number of jobs. Payloads and results above PAYLOAD_INLINE_BYTES_MAX are None.
        Creation times are compared by id.
        """

    async def list_due(self, which: JobFilter, after: Pair | None, limit: int) -> JobPage[Pair]:
        """Return up to `limit` jobs that wait for an instant and come after the pair.

        Of all jobs that are scheduled or retrying, those of the filter, the soonest first. A page
        may be short or empty, as one of list_jobs.
        """

    async def find_job_ids(self, which: JobFilter, before: int | None, limit: int) -> IdPage:
        """Return the ids of up to `limit` jobs, as list_jobs does, after one bounded look.

        It finds every commit that returned before the last `settle`. A job that changed later may
        be found by its older record.
        """

    async def settle(self) -> None:
        """Let find_job_ids find all commits that returned before this call."""

    async def count_waiting(self, epoch: int) -> Waiting:
        """Return how many jobs waited in the snapshot of this epoch; of each queue, in each state.

        A large store counts them for seconds beside later commits. Raise StoreError if they cannot
        be counted, or if there is a newer snapshot.
        """

    async def list_attempts(self, job_id: int) -> list[AttemptRecord]:
        """Return the last ATTEMPTS_MAX attempts that did not complete the job, oldest first."""

    async def list_output_sizes(self, job_id: int) -> list[OutputSize]:
        """Return the sizes of the captured streams, by attempt and stream.

        The store keeps the streams of the latest attempts, OUTPUTS_BYTES_MAX in all.
        """

    async def read_output(self, job_id: int, piece: OutputPiece) -> bytes:
        """Return a range of bytes of a captured stream; empty if it is gone."""

    async def get_schedule(self, which: str | int) -> Schedule | None:
        """Return the schedule with this name (or this id), without its active jobs, or None."""

    async def list_schedules(
        self, after: str | None, limit: int, which: ScheduleFilter = ANY_SCHEDULE
    ) -> SchedulePage:
        """Return up to `limit` schedules in order of name, after the given name.

        They are without their active jobs. There may be fewer of them although the list continues:
        a store looks at a bounded number of schedules, and payloads may be large.
        """

    async def count_schedules(self, overdue: Sequence[int]) -> ScheduleCounts:
        """Return how many schedules there are in each health; overdue: as for ScheduleFilter."""

    async def get_histories(self, schedule_ids: Sequence[int]) -> dict[int, RunHistory]:
        """Return the histories of those of the schedules that have had a run end, by id."""

    async def list_schedule_statuses(self, after: int, limit: int) -> list[ScheduleStatus]:
        """Return what monitoring shows of schedules, in order of id, those after the given one."""

    async def list_rules(self, after: int, limit: int) -> list[ScheduleRule]:
        """Return the rules of schedules that are not paused, in order of id, after the given one.

        There may be fewer than `limit`, because payloads may be large; none only at the end.
        """

    async def list_owned(self, owner: str) -> list[str]:
        """Return the names of the owner's schedules, in their order."""

    async def list_names(self, schedules_max: int, tags_max: int) -> StoredNames:
        """Return the first names of schedules, and the first tags of jobs."""

    async def list_decisions(
        self, schedule_id: int, limit: int, before: int | None = None
    ) -> DecisionPage:
        """Return the schedule's decisions with a number below `before`, newest first.

        The store keeps the latest DECISIONS_KEPT_MIN decisions, and up to DECISIONS_KEPT of which
        none is older than the latest one by DECISIONS_KEPT_US; some older ones may still be there.
        """

    async def list_log(
        self, which: LogFilter, before: int | None, limit: int
    ) -> list[NumberedEntry]:
        """Return entries of the log of changes, newest first, with a number below `before`."""

    async def load_bulk_step(self, operation: int, before: int) -> BulkStep | None:
        """Return the step of the operation with the largest number below `before`, or None."""

    async def list_bulk_changes(self, job_id: int) -> list[tuple[BulkOperation, int]]:
        """Return the operations whose steps have the job, and when each changed it."""

    async def load_minutes(self, after: int) -> list[tuple[int, str]]:
        """Return the instants and the texts of save_minute after the instant, in order."""

    async def load_tallies(
        self, dimension: Dimension, period: Period, after: int, before: int, limit: int
    ) -> list[tuple[int, str]]:
        """Return rows between the instants: when each begins, and its text."""

    async def find_idempotency_record(
        self, scope: str, fingerprint: bytes
    ) -> IdempotencyRecord | None:
        """Return the stored response for an Idempotency-Key, or None.

        Its body is empty if its request had another fingerprint.
        """

    async def size_bytes(self) -> int:
        """Return the size of the store with its log; 0 if it is in memory."""

    async def database_health(self) -> DatabaseHealth | None:
        """Return how the database server treats the tables; None for a store in a file."""


class Store(Reader, Protocol):
    """The durable records of jobs, schedules and queues, as the engine uses them."""

    path: str | None  # of the file; other files of the server may stand beside it

    async def prepare(self) -> None:
        """Make a later `open` quicker, while another server holds the store; write nothing.

        Raise the errors of an `open` that shows already that it cannot succeed. `close` undoes it.
        """

    async def open(self) -> Snapshot:
        """Lock the store for this process and return its snapshot.

        A power cut can undo it until `recovered` returns. Raise StoreLocked, which names the
        holder, if another server has the store.
        """

    async def close(self, *, keep_log: bool = False) -> None:
        """Close and unlock the store; harmless if it is not open.

        keep_log: close it in constant time and keep the lock, because this process or another one,
        which has the lock's descriptors, opens it next. The next close() releases the lock.
        """

    async def shorten_log(self) -> None:
        """Write the log into the tables as far as possible, before a close that keeps it."""

    def lock_descriptors(self) -> tuple[int, ...]:
        """Return the descriptors that hold the lock of an open store; none if it is in memory."""

    async def check(self) -> None:
        """Raise StoreBroken if the opened files were moved, replaced or removed."""

    async def recovered(self) -> None:
        """Make the epoch of this server durable, and note that this server was the last to hold it.

        The caller makes no lease of this epoch before. If the server closes the store in order
        afterwards, the next one finds that its predecessor was not killed, even if this server has
        committed nothing.
        """

    def note_leaving(self) -> None:
        """Count the end of this server as an orderly one from now on, even if it is killed."""

    def bound_replay(self, is_bounded: bool) -> None:
        """Keep little that a server must replay when it opens the store after this one's death.

        This makes commits dearer. A server turns it on while another one waits to take over.
        """

    async def backup(self, now: Callable[[], int]) -> tuple[BinaryIO, int]:
        """Copy the store concurrently with commits; return a file without a name, and its instant.

        The file is a whole store with every commit that returned before the call. now: returns the
        present instant in microseconds. Raise StoreUnsuitable if the store is in memory, StoreFull,
        or Overloaded while another backup is under way.
        """

    # These run one after the other, in the order of the calls.

    async def commit(self, changes: Changes) -> None:
        """Make all the changes durable, or none; raise StoreError.

        The records are read before the first await. The commit fails if it updates a job that is
        not in the store, or if two jobs have the same unique key, or the same schedule and instant.
        An ended job that is not kept (see core/keep.py) is dropped with all its records. Each
        ended run is added to the history of its schedule, unless that is deleted.
        """

    async def save_clock(self, mark: ClockMark) -> None:
        """Make the mark durable; this shifts all instants that count elapsed time.

        They move by the difference of the offsets, all at once and in constant time.
        """

    async def save_minute(self, at: int, figures: str, keep_us: int) -> None:
        """Make the figures of the minute that begins at `at` durable, in place of earlier ones.

        Minutes that are older than this one by `keep_us` are deleted.
        """

    async def add_tallies(self, tallies: HourTallies, now: int, batch: int) -> None:
        """Add tallies of hours, of which HOURS_KEPT stay; the next commit makes this durable.

        batch: a random name of the call. The same call may be repeated until it is known to have
        succeeded, and what it adds counts once.
        """

    async def session_key(self) -> bytes:
        """Return the random key that signs sessions; the first call makes it durable.

        Later servers of the store have the same key. A backup has none.
        """

    async def snapshot(self) -> Snapshot:
        """Return a snapshot of an open store under a new epoch.

        The numbers of attempts that were dispatched and not stored may be used again: the new
        epoch makes their leases differ.
        """

    async def load(self, load: Load) -> Any:
        """Return what the load requests; a payload above PAYLOAD_INLINE_BYTES_MAX is None.

        LoadTimers: the scheduled and retrying jobs after the pair, in order of (due_at, id).
        LoadReady: the queued jobs of the ready key after the pair, in order of (rank, id).
        LoadExpired: the waiting jobs whose expires_at is not after `now`.
        LoadJob: the job with this id, or None.
        LoadJobs: those of the jobs with these ids that exist, by id.
        LoadUniqueHolders: the jobs that hold these unique keys, by key.
        LoadSchedule: the schedule with this name or id, with its active jobs, or None.
        LoadSchedules: the unpaused schedules that will fire, with their active jobs, after the
        pair, in order of (next_fire_at, id), as many as the load takes for a page.
        LoadBlocked: a BlockedRun for each blocked run with an id above `after`, in order of id, as
        many as the load takes for a page.
        PromoteDue: Promoted, after it has queued the first jobs of LoadTimers that are due up to
        `until`. The next commit makes this durable; a crash before it may undo it.
        """

    async def load_running(self, after: int, limit: int) -> list[Job]:
        """Return running jobs with an id above `after`, in order of id."""

    async def load_payload(self, job_id: int) -> bytes:
        """Return the payload, whatever its size; raise NotFound."""

    async def prune(self, now: int, retention: Retention, limit: int) -> int:
        """Delete up to `limit` ended jobs and idempotency records past their retention.

        So are entries of the log of changes, apart from the latest ones.
        The last runs of a schedule stay; after newer ones have ended, they may stay for a while.

        If there are none, give some free pages back to the file system. Return the number of these
        records or pages; 0 if nothing was left to do. Jobs of the last commits may stay until a
        read has seen them. A power cut may undo the step.
        """
