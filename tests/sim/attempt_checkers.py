"""The invariants of attempts: which worker may run which job, when, and how often."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from schedo.core.leases import Completed, Failed, Released, Snoozed, StopReason
from schedo.core.limits import PAYLOAD_INLINE_BYTES_MAX, SECOND
from schedo.core.model import LeaseKey
from schedo.core.states import TIMED, State
from tests.sim.history import History, Live
from tests.sim.trace import (
    Answered,
    Attached,
    Called,
    Calmed,
    Died,
    Event,
    Froze,
    Kept,
    Opened,
    Reopened,
    Reported,
    Started,
    StopSent,
)

Findings = Iterator[str]
DELAY_SLACK_US = 400 * SECOND  # time for the last server to start
HANDOVER_MAX_US = 60 * SECOND  # the same


def durable_before_runnable(history: History) -> Findings:
    """A job starts only after it is on disk."""
    for ident, starts in history.starts.items():
        rows = history.rows.get(ident)
        if not rows or rows[0][0] > starts[0][0]:
            yield f"job {ident} was started before it was durable"


def never_two_live_leases(history: History) -> Findings:
    """A job has one attempt at a time, as long as its worker and its server live."""
    live = Live()
    for event in history.trace:
        if isinstance(event, Started | Kept):
            key = event.lease.key
            how = "was started" if isinstance(event, Started) else "goes on"
            for other in live.leases:
                if other.job_id == key.job_id and other != key:
                    yield f"{key} {how} while {other} runs"
        live.record(event)


def attempts_only_grow(history: History) -> Findings:
    """A lease is given once; later ones of its job have larger numbers."""
    for starts in history.starts.values():
        for (_, before), (_, after) in pairwise(starts):
            old, new = before.lease.key, after.lease.key
            if (new.epoch, new.attempt) <= (old.epoch, old.attempt):
                yield f"{new} was started after {old}"


def epochs_only_grow(history: History) -> Findings:
    """Epochs grow with each server and, while one runs, with each recovery.

    A lease that is on its way to a remote worker outlives a recovery, and may arrive when others
    have leases of the new epoch. So for these workers epochs grow with each server, and for each
    of them.
    """
    opened = highest = 0
    latest: dict[int, int] = {}  # the epoch of the last lease, by connection of a remote worker
    for event in history.trace:
        if isinstance(event, Opened):
            if event.epoch <= highest:
                yield f"server {event.server} opened with epoch {event.epoch} after {highest}"
            opened = highest = event.epoch
        elif isinstance(event, Attached) and not event.server:
            latest[event.connection] = 0
        elif isinstance(event, Started):
            key = event.lease.key
            of_worker = latest.get(event.connection)
            epoch = highest if of_worker is None else max(opened, of_worker)
            if key.epoch < epoch:
                yield f"{key} was started in epoch {epoch}"
            if of_worker is not None:
                latest[event.connection] = key.epoch
            highest = max(highest, key.epoch)


def a_handover_is_short(history: History) -> Findings:
    """When a server has left its store to the next one, that one serves soon, or a server dies."""
    frozen: Froze | None = None
    for event in history.trace:
        if isinstance(event, Froze):
            frozen = event
        elif isinstance(event, Opened | Reopened | Died) and frozen is not None:
            if event.at > frozen.at + HANDOVER_MAX_US:
                yield f"nothing was served for {event.at - frozen.at} us after a freeze"
            frozen = None


def nothing_starts_early(history: History) -> Findings:
    """A job does not start before its time, nor during a delay, a retry delay or a snooze.

    These count the time that really passes; for a given instant a clock set back does not count.
    """
    waits = _Waits(history)
    for position, event in enumerate(history.trace):
        if isinstance(event, Started) and event.lease.key.job_id in history.moved_in_bulk:
            continue
        if isinstance(event, Started) and history.rows.get(event.lease.key.job_id):
            at, wall = waits.due(event)
            if event.at < at:
                yield f"{event.lease.key} was started {at - event.at} us early"
            if history.high_water[position] < wall:
                yield f"{event.lease.key} was started {wall - event.wall} us early by the clock"
        else:
            waits.record(position, event)


def delays_end_in_time(history: History) -> Findings:
    """A delay lasts its elapsed time, however the clock is set; in calm times it is not longer."""
    calmed_at = next((event.at for _, event in history.of(Calmed)), None)
    for item in history.submitted:
        job = item.job
        if calmed_at is None or item.result != "new" or job is None or job.id in history.moved:
            continue
        rows = history.rows.get(job.id)
        if item.spec.run_at is not None or not item.spec.delay_us or not rows:
            continue
        first = rows[0][0]
        moved_on = next((at for at, row in rows if row.state is not State.SCHEDULED), None)
        last = history.trace[-1 if moved_on is None else moved_on].at
        due = history.trace[first].at + item.spec.delay_us
        if last > max(due, calmed_at) + DELAY_SLACK_US:
            yield f"job {job.id} waited {last - due} us after its delay"


class _Waits:
    """The time until which each job must wait, derived from observable events."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._submitted = {item.spec.payload: item for item in history.submitted}
        self._moved = {(at, ident) for ident, where in history.moved.items() for at in where}
        self._until: dict[int, int] = {}
        self._moving: dict[int, set[int]] = defaultdict(set)  # calls that may take effect any time
        self._reported: dict[int, tuple[int, int]] = {}  # position and number of the attempt

    def due(self, event: Started) -> tuple[int, int]:
        """Return the earliest elapsed time and the earliest wall time of the start."""
        ident = event.lease.key.job_id
        if ident in self._until:
            return self._until[ident], 0
        item = self._submitted.get(event.lease.payload or b"")
        if item is None:  # a run of a schedule; the server's own clock decided its instant
            row = self._history.rows[ident][0][1]
            return event.lease.scheduled_for - row.offset_us - self._history.began_at, 0
        if item.spec.run_at is not None:
            return 0, item.spec.run_at
        return item.called.at + item.spec.delay_us, 0

    def record(self, position: int, event: Event) -> None:
        if isinstance(event, Called) and isinstance(event.subject, tuple) and event.subject:
            if (position, event.subject[0]) in self._moved:
                self._until[event.subject[0]] = 0
                self._moving[event.subject[0]].add(event.call)
        elif isinstance(event, Answered):
            for calls in self._moving.values():
                calls.discard(event.call)
        elif isinstance(event, Reported) and event.is_live:
            ident = event.key.job_id
            wait = _shortest_wait(self._history, event)
            self._until[ident] = 0 if self._moving.get(ident) else event.at + wait
            self._reported[ident] = (position, event.key.attempt)
        elif isinstance(event, Died):  # reports to this server that are not on disk are void
            for ident in self._not_stored(position):
                self._until[ident] = 0
            self._reported.clear()

    def _not_stored(self, position: int) -> list[int]:
        """Return the jobs with a report that is not on disk before the position."""
        rows = self._history.rows
        return [
            ident
            for ident, (at, attempt) in self._reported.items()
            if not any(
                at < row < position and job.state in TIMED and job.attempt >= attempt
                for row, job in rows.get(ident, ())
            )
        ]


def _shortest_wait(history: History, event: Reported) -> int:
    match event.outcome:
        case Snoozed(delay):
            return delay
        case Failed(retry_in_us=int() as delay):
            return delay
        case Failed():
            rows = history.rows.get(event.key.job_id)
            retry = rows[0][1].options.retry if rows else None
            if retry is not None and retry.backoff == "fixed" and not retry.jitter:
                return retry.initial_us
    return 0


def at_most_once_means_once(history: History) -> Findings:
    """An at_most_once job starts again only if its handler or a client requested it."""
    requests = _requested_starts(history)
    for ident, starts in history.starts.items():
        if not starts[0][1].lease.options.at_most_once or ident in history.retried_in_bulk:
            continue
        for (before, _), (after, event) in pairwise(starts):
            if not any(before < position < after for position in requests[ident]):
                yield f"{event.lease.key} runs at most once and was started again"


def _requested_starts(history: History) -> dict[int, list[int]]:
    """Return the positions at which another start of an at_most_once job was requested."""
    requests = defaultdict(list, {ident: [*where] for ident, where in history.retried.items()})
    for position, event in history.of(Reported):
        if event.is_live and isinstance(event.outcome, Snoozed | Released | Failed):
            requests[event.key.job_id].append(position)
        elif isinstance(event.outcome, Failed) and history.is_running(event.key, position):
            # The worker has outlived the server that froze, and the next one awaits its result.
            requests[event.key.job_id].append(position)
    for position, stopped in history.of(StopSent):
        if stopped.stop.reason is StopReason.TIMEOUT:
            requests[stopped.stop.key.job_id].append(position)
    return requests


def a_reported_completion_stands(history: History) -> Findings:
    """As long as its server lives, a completed job is not run again.

    An operation may retry a job that was cancelled before its attempt completed.
    """
    done: dict[int, LeaseKey] = {}
    retries = {at: ident for ident, where in history.retried.items() for at in where}
    asking: dict[int, int] = {}  # calls that may take effect after the report
    for position, event in enumerate(history.trace):
        if isinstance(event, Reported) and event.is_live and isinstance(event.outcome, Completed):
            if event.key.job_id not in history.retried_in_bulk.union(asking.values()):
                done[event.key.job_id] = event.key
        elif isinstance(event, Answered):
            asking.pop(event.call, None)
        elif isinstance(event, Died):
            done.clear()
        elif isinstance(event, Called) and position in retries:
            done.pop(retries[position], None)
            asking[event.call] = retries[position]
        elif isinstance(event, Started) and event.lease.key.job_id in done:
            yield f"{event.lease.key} was started after {done[event.lease.key.job_id]} completed"


def expired_jobs_do_not_start(history: History) -> Findings:
    """Jobs do not start at or after their expiry, unless they wait for a commit or a load."""
    for ident, starts in history.starts.items():
        row = history.rows[ident][0][1] if ident in history.rows else None
        if row is None or row.expires_at is None or ident in history.retried:
            continue
        if ident in history.retried_in_bulk:
            continue
        first = history.rows[ident][0][0]
        for _, event in starts:
            if row.expires_elapsed:
                has_expired = history.elapsed(event) >= row.expires_at - history.offset_at(first)
            else:
                has_expired = event.wall >= row.expires_at
            if has_expired and is_given_at_once(event):
                yield f"{event.lease.key} was started after it had expired"


def queues_keep_their_limits(history: History) -> Findings:
    """A queue has at most as many leases as its concurrency, and gets none while it is paused."""
    limits = _Settings(("set_queue",), lambda called: called.subject.concurrency, None)
    paused = _Settings(
        ("set_queue", "pause_queue", "resume_queue"),
        lambda called: called.name == "pause_queue",
        False,
    )
    live = Live()
    for event in history.trace:
        live.record(event)
        if isinstance(event, Started) and is_given_at_once(event):
            queue = event.lease.queue
            running = sum(1 for held in live.leases.values() if held.lease.queue == queue)
            if all(most is not None and running > most for most in limits.of(queue)):
                yield f"{event.lease.key} is the {running}. of queue {queue}"
            if paused.of(queue) == {True}:
                yield f"{event.lease.key} was started in queue {queue}, which is paused"
        elif isinstance(event, Called | Answered):
            for settings in (limits, paused):
                settings.learn(history.calls[event.call][1], event)


class _Settings:
    """The possible settings of a queue: the last acknowledged ones, and all requested since."""

    def __init__(
        self, names: tuple[str, ...], value: Callable[[Called], object], default: object
    ) -> None:
        self._names = names
        self._value = value
        self._default = default
        self._known: dict[str, object] = {}
        self._open: dict[str, dict[int, object]] = defaultdict(dict)

    def of(self, queue: str) -> set[Any]:
        return {self._known.get(queue, self._default), *self._open[queue].values()}

    def learn(self, called: Called, event: Called | Answered) -> None:
        if called.name not in self._names:
            return
        queue = getattr(called.subject, "name", called.subject)
        asked = self._open[queue]
        if isinstance(event, Called):
            asked[called.call] = self._value(called)
        elif event.code is None:  # calls take effect in the order in which they were made
            self._known[queue] = self._value(called)
            self._open[queue] = {call: value for call, value in asked.items() if call > called.call}


def is_given_at_once(event: Started) -> bool:
    """Return whether the lease went to the worker at once, without a wait after the decision."""
    payload = event.lease.payload or b""
    return not event.lease.options.at_most_once and len(payload) <= PAYLOAD_INLINE_BYTES_MAX


CHECKERS: tuple[Callable[[History], Findings], ...] = (
    durable_before_runnable,
    never_two_live_leases,
    attempts_only_grow,
    epochs_only_grow,
    a_handover_is_short,
    nothing_starts_early,
    delays_end_in_time,
    at_most_once_means_once,
    a_reported_completion_stands,
    expired_jobs_do_not_start,
    queues_keep_their_limits,
)
