"""What the engine asks of a store; tests/store/contract.py checks every promise on each store.

Two kinds of calls:
- `commit` and the `load_` calls run one after the other, in the order they were made, on the one
  connection that writes. A load sees every commit made before it. The scheduler relies on that:
  what it changed since is still in its memory, and memory wins.
- the other reads run beside them on a read-only connection; they see every commit that returned
  before they were asked, and never block a writer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from schedo.core.changes import AttemptRecord, Changes, IdempotencyRecord
from schedo.core.loads import Promoted
from schedo.core.model import DecisionRecord, Job, Queue, ReadyKey, Schedule


class ClockMark(NamedTuple):
    """How the wall clock of the last server stood; see engine/clock_changes.py."""

    offset_us: int = 0  # the wall clock minus the elapsed timeline
    base_us: int = 0  # the wall clock minus the time since the machine started
    boot: int = 0  # names that start of the machine
    seen_at: int = 0  # the newest instant of the elapsed timeline that the store knows of


NO_MARK = ClockMark()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a server must know of a store before its first turn."""

    epoch: int  # larger than every one before it, already durable
    last_id: int  # the largest id in use
    queues: list[Queue]
    ready_keys: list[ReadyKey]  # those with queued jobs
    blocked: list[tuple[int, int]]  # (schedule id, job id) of every blocked job
    was_killed: bool = False  # the last server ended in disorder, and the host has run since
    clock: ClockMark = NO_MARK


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list; None means any. Each field is a column with an index."""

    state: str | None = None
    queue: str | None = None
    task: str | None = None
    schedule_id: int | None = None
    tag: str | None = None
    unique_key: str | None = None
    created_after: int | None = None  # inclusive
    created_before: int | None = None  # exclusive


@dataclass(frozen=True, slots=True)
class Retention:
    """How long ended jobs are kept, in microseconds (River's: a day, a week for failures)."""

    completed_us: int = 86_400_000_000
    cancelled_us: int = 86_400_000_000  # also expired
    failed_us: int = 7 * 86_400_000_000
    answers_us: int = 86_400_000_000


class OutputSize(NamedTuple):
    """How large a captured stream is, in bytes."""

    attempt: int
    stream: str
    head: int
    tail: int
    total: int  # of what was written; the difference was left out


class OutputPiece(NamedTuple):
    """Some bytes of a captured stream."""

    attempt: int
    stream: str
    part: Literal["head", "tail"]
    at: int
    length: int


@dataclass(frozen=True, slots=True)
class Counts:
    """Waiting and running jobs by queue and state, for pages and metrics."""

    by_queue: dict[str, dict[str, int]] = field(default_factory=dict)


class Store(Protocol):
    """A durable home for jobs, schedules and queues."""

    async def open(self) -> Snapshot:
        """Take the store for this process, and take stock; StoreLocked names another holder."""

    async def close(self) -> None:
        """Let go of the store; harmless if it is not open."""

    def note_leaving(self) -> None:
        """Let the end of this server count as one in order, however it comes."""

    async def check(self) -> None:
        """Raise StoreBroken if what was opened is not where it was any more."""

    async def commit(self, changes: Changes) -> None:
        """Make all the changes durable, or none; raise StoreError.

        The records are read before the first await. An update of a job that the store has not, a
        second job with a unique key, and a second job of a schedule for one instant fail the
        commit.
        """

    # Ordered with commits.

    async def save_clock(self, mark: ClockMark) -> None:
        """Make the mark durable. From then on all instants that count elapsed time are its own.

        They have moved by the difference of the offsets, at once and whatever their number.
        """

    async def snapshot(self) -> Snapshot:
        """Return what an open store holds now, under a new epoch.

        Attempts that were handed out and are not stored may be numbered again: a new epoch makes
        their leases differ.
        """

    async def load_timers(self, after: tuple[int, int] | None, limit: int) -> list[Job]:
        """Return scheduled and retrying jobs in order of (due_at, id), those after the pair.

        Here and in the other loads a payload above PAYLOAD_INLINE_BYTES_MAX is None.
        """

    async def promote_due(self, after: tuple[int, int], until: int, limit: int) -> Promoted:
        """Queue the first limit jobs of load_timers that are due up to `until`; say which.
        No caller is told that it is durable: the next commit makes it so, and until then a crash
        may undo it.
        """

    async def load_ready(
        self, lane: ReadyKey, after: tuple[int, int] | None, limit: int
    ) -> list[Job]:
        """Return the lane's queued jobs in order of (rank, id), those after the given pair."""

    async def load_schedules(self, after: tuple[int, int] | None, limit: int) -> list[Schedule]:
        """Return unpaused schedules that will fire, in order of (next_fire_at, id), after the pair.

        Schedules bring their active jobs and the blocked one of them, unless they allow overlap.
        """

    async def load_running(self, after: int, limit: int) -> list[Job]:
        """Return running jobs with an id above after, in order of id."""

    async def load_expired(self, now: int, limit: int) -> list[Job]:
        """Return unfinished, not running jobs whose expires_at is not after now."""

    async def load_job(self, job_id: int) -> Job | None:
        """Return the job, or None."""

    async def load_unique(self, key: str) -> Job | None:
        """Return the job that holds the unique key, or None."""

    async def load_schedule(self, name: str | int) -> Schedule | None:
        """Return the schedule with this name (or this id) with its active jobs, or None."""

    async def load_payload(self, job_id: int) -> bytes:
        """Return the payload, however large; raise NotFound."""

    async def prune(self, now: int, retention: Retention, limit: int) -> int:
        """Delete up to limit ended jobs and stale answers past their retention; return how many."""

    # Beside commits.

    async def get_job(self, job_id: int) -> Job | None:
        """Return the job with its whole payload, or None."""

    async def list_jobs(self, which: JobFilter, before: int | None, limit: int) -> list[Job]:
        """Return jobs newest first, those with an id below before.

        Payloads and results above PAYLOAD_INLINE_BYTES_MAX are None. Times of creation are compared
        by id.
        """

    async def list_attempts(self, job_id: int) -> list[AttemptRecord]:
        """Return the last ATTEMPTS_MAX attempts that did not complete the job, oldest first."""

    async def list_output_sizes(self, job_id: int) -> list[OutputSize]:
        """Return how large the captured streams are, by attempt and stream.

        They are those of the latest attempts, OUTPUTS_BYTES_MAX in all.
        """

    async def read_output(self, job_id: int, piece: OutputPiece) -> bytes:
        """Return some bytes of a captured stream; none if it is gone."""

    async def get_schedule(self, name: str) -> Schedule | None:
        """Return the schedule with its active jobs, or None."""

    async def list_schedules(self, after: str | None, limit: int) -> list[Schedule]:
        """Return schedules by name, those after the given name."""

    async def list_decisions(self, schedule_id: int, limit: int) -> list[DecisionRecord]:
        """Return the schedule's latest decisions, newest first."""

    async def list_queues(self) -> list[Queue]:
        """Return the configured queues by name."""

    async def count_jobs(self) -> Counts:
        """Return how many unfinished jobs each queue has in each state.

        A large store counts in parts, so a job that moves meanwhile can be missed or counted twice.
        """

    async def find_idempotency_record(self, scope: str) -> IdempotencyRecord | None:
        """Return the stored answer for an Idempotency-Key, or None."""

    async def size_bytes(self) -> int:
        """Return how much room the store takes, log included."""
