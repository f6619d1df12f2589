"""Admission of submitted specs: defaults, due time, rank and unique keys of new jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from schedo.core.built_in import BUILT_IN
from schedo.core.commands import Accepted, Submit
from schedo.core.ids import IdSource, render_id
from schedo.core.job_table import JobTable
from schedo.core.limits import DURATION_MAX, INSTANT_MAX, PRIORITY_MAX, PRIORITY_MIN
from schedo.core.loads import Loaded, LoadUniqueHolders, Needs
from schedo.core.model import ONCE, PLAIN, Job, JobSpec, Options, Retry, Trigger, Unique
from schedo.core.runs import ScheduledRun
from schedo.core.states import State
from schedo.core.worker_pool import WorkerPool
from schedo.errors import DuplicateKey, Invalid, SchedoError

TASK_RETRY = Retry()
RUN_RETRY = Retry(max_attempts=3)  # of a schedule's run without a policy of its own
_TASKS_REMEMBERED_MAX = 4_096

_SCHEDULED, _QUEUED = State.SCHEDULED, State.QUEUED


class Admission:
    """Makes jobs from specs and adds them to the job table."""

    def __init__(
        self,
        jobs: JobTable,
        ids: IdSource,
        workers: WorkerPool,
        cancel: Callable[[Job, int], Job],
    ) -> None:
        self._jobs = jobs
        self._ids = ids
        self._workers = workers
        self._cancel = cancel
        # By task: the complete options of jobs that are submitted without any.
        self._plain = workers.plain_options

    def submit(
        self, command: Submit, now: int, loaded: Loaded
    ) -> list[Accepted | SchedoError] | Needs:
        """Accept the specs; return one reply for each, in their order."""
        specs = command.specs
        keys = {unique.key for spec in specs if (unique := spec.options.unique) is not None}
        holders: Mapping[str, Job] = {}
        if keys:
            load = LoadUniqueHolders(tuple(sorted(keys)))
            if load in loaded:
                holders = loaded[load]
            elif any(self._jobs.find_key(key) is None for key in keys):
                return Needs((load,))
        return [self._accept(spec, holders, now) for spec in specs]

    def _accept(
        self, spec: JobSpec, holders: Mapping[str, Job], now: int
    ) -> Accepted | SchedoError:
        """Make the job unless a number is out of range or another job holds its unique key.

        holders: the stored jobs that hold keys.
        """
        if not _is_in_range(spec):
            return _refuse_range(spec)
        unique = spec.options.unique
        if unique is None:
            return Accepted(self._make(spec, now), False)
        holder = self._jobs.find_unique_holder(unique.key, holders.get(unique.key))
        if holder is None:
            return Accepted(self._make(spec, now), False)
        is_held = _holds_key(holder, unique, now - self._jobs.offset_us)
        if is_held and unique.on_conflict == "reject":
            return DuplicateKey(
                f"job {render_id(holder.id)} is {holder.state} and holds the key {unique.key!r}"
            )
        if is_held and (unique.on_conflict == "return" or holder.state is State.RUNNING):
            return Accepted(holder, True)
        holder = self._jobs.track(holder)
        self._jobs.release_key(holder)
        if is_held and not holder.is_final:
            self._cancel(holder, now)
        return Accepted(self._make(spec, now), False)

    def make_invoked(self, spec: JobSpec, now: int) -> Job:
        """Make an invoked job. It has one attempt, because the caller gets the error."""
        options = msgspec.structs.replace(spec.options, retry=ONCE)
        job = self._fill(spec, self._fill_options(spec.task, options), now, now)
        job.trigger = Trigger.INVOKE
        self._jobs.add(job)
        return job

    def make_run(self, run: ScheduledRun, now: int) -> Job:
        """Make the job of a scheduled run."""
        spec = run.spec
        options = self._fill_options(spec.task, spec.options, RUN_RETRY)
        job = self._fill(spec, options, run.due_at, now)
        job.schedule_id = run.schedule_id
        job.scheduled_for = run.scheduled_for
        job.trigger = run.trigger
        job.missed_count = run.missed_count
        # The instant of the rule has come. The run waits for its jitter or for earlier runs, and
        # those waits count elapsed time.
        job.due_elapsed = run.is_blocked or run.due_at != run.scheduled_for
        if run.is_blocked:
            job.state = State.BLOCKED
        self._jobs.add(job)
        return job

    def _make(self, spec: JobSpec, now: int) -> Job:
        due_at = now + spec.delay_us if spec.run_at is None else spec.run_at
        options = self._fill_options(spec.task, spec.options)
        job = self._fill(spec, options, due_at, now)
        if spec.run_at is None and spec.delay_us > 0:
            job.due_elapsed = True
        if options.unique is not None:
            job.unique_key = options.unique.key
        self._jobs.add(job)
        return job

    def _fill(self, spec: JobSpec, options: Options, due_at: int, now: int) -> Job:
        job = self._jobs.blank()
        job.id = self._ids.next(now)
        job.task = spec.task
        job.queue = spec.queue
        job.payload = spec.payload
        job.priority = spec.priority
        job.options = options
        job.created_at = now
        job.due_at = due_at
        job.rank = self._jobs.rank(job)
        job.state = _SCHEDULED if due_at > now else _QUEUED
        job.offset_us = self._jobs.offset_us
        job.expires_at = spec.expires_at
        if spec.expires_in_us is not None:
            job.expires_at = now + spec.expires_in_us
            job.expires_elapsed = True
        return job

    def _fill_options(
        self, task: str, options: Options, default_retry: Retry | None = None
    ) -> Options:
        """Complete the options with the task's delivery, retry policy and timeout.

        default_retry applies if neither the job nor its task has a policy (None: TASK_RETRY).
        """
        is_plain = options is PLAIN and default_retry is None
        if is_plain and (known := self._plain.get(task)) is not None:
            return known
        built_in = BUILT_IN.get(task)
        defaults = PLAIN if built_in else self._workers.task_defaults(task) or PLAIN
        at_most_once = options.at_most_once
        if at_most_once is None:
            at_most_once = defaults.at_most_once
        retry = options.retry
        if retry is None and not options.at_most_once:
            retry = defaults.retry
        if retry is None:
            default_retry = default_retry or (built_in.retry if built_in else TASK_RETRY)
            retry = ONCE if at_most_once else default_retry
        filled = msgspec.structs.replace(
            options,
            retry=retry,
            timeout_us=options.timeout_us or defaults.timeout_us,
            at_most_once=at_most_once or None,
        )
        if is_plain:
            if len(self._plain) >= _TASKS_REMEMBERED_MAX:
                self._plain.clear()
            self._plain[task] = filled
        return filled


def _is_in_range(spec: JobSpec) -> bool:
    """Whether the instants, durations and priority of the spec are in range.

    The HTTP API checks its requests itself, with more precise errors. This check is for programs
    that submit from the server's own process.
    """
    return (
        spec.delay_us <= DURATION_MAX
        and PRIORITY_MIN <= spec.priority <= PRIORITY_MAX
        and (spec.run_at is None or -INSTANT_MAX <= spec.run_at <= INSTANT_MAX)
        and (spec.expires_at is None or -INSTANT_MAX <= spec.expires_at <= INSTANT_MAX)
        and (spec.expires_in_us is None or spec.expires_in_us <= DURATION_MAX)
    )


def _refuse_range(spec: JobSpec) -> Invalid:
    return Invalid(
        f"a job of {spec.task} has a priority outside {PRIORITY_MIN} to {PRIORITY_MAX}, an instant"
        " after the year 9999, or a duration of more than a hundred years"
    )


def _holds_key(holder: Job, unique: Unique, elapsed: int) -> bool:
    """Whether the holder still has the key: because of its state, or because the period lasts.

    elapsed: the current instant on the elapsed timeline.
    """
    age_us = elapsed - (holder.created_at - holder.offset_us)
    in_period = unique.for_us is not None and age_us < unique.for_us
    return in_period or holder.state in unique.states
