"""Makes the records of new jobs: of submits, runs, invocations and events."""

from __future__ import annotations

import msgspec

from schedo.core.built_in import BUILT_IN
from schedo.core.event_jobs import Facts, add_facts
from schedo.core.ids import IdSource, newest_at
from schedo.core.job_table import JobTable
from schedo.core.model import ONCE, PLAIN, Job, JobSpec, Options, Retry, Trigger
from schedo.core.runs import ScheduledRun
from schedo.core.states import State
from schedo.core.worker_pool import WorkerPool

TASK_RETRY = Retry()
RUN_RETRY = Retry(max_attempts=3)  # of a schedule's run; a built-in task has its own default
_TASKS_REMEMBERED_MAX = 4_096

_SCHEDULED, _QUEUED = State.SCHEDULED, State.QUEUED


class JobMaker:
    """Makes jobs with the defaults of their tasks, and adds them to the job table."""

    def __init__(
        self, jobs: JobTable, ids: IdSource, workers: WorkerPool, page_url: str = ""
    ) -> None:
        """page_url: of the page, for the links in event jobs; without it they have none."""
        self._jobs = jobs
        self._ids = ids
        self._workers = workers
        self._page_url = page_url
        # By task: the complete options of jobs that are submitted without any.
        self._plain = workers.plain_options

    def make(self, spec: JobSpec, now: int) -> Job:
        """Make a submitted job."""
        job = self._make(spec, now)
        self._jobs.add(job)
        return job

    def make_numbered(self, job_id: int, spec: JobSpec, now: int) -> Job:
        """Make a job that was submitted elsewhere, at the instant of its id unless that is ahead.

        Another clock has made the id.
        """
        job = self._make(spec, min(newest_at(job_id), now))
        job.id = job_id
        if job.due_at <= now:
            job.state = _QUEUED
        self._jobs.add(job)
        return job

    def _make(self, spec: JobSpec, now: int) -> Job:
        due_at = now + spec.delay_us if spec.run_at is None else spec.run_at
        options = self._plain.get(spec.task) if spec.options is PLAIN else None
        if options is None:
            options = self._fill_options(spec.task, spec.options)
        job = self._fill(spec, options, due_at, now)
        if spec.run_at is None and spec.delay_us > 0:
            job.due_elapsed = True
        if options.unique is not None:
            job.unique_key = options.unique.key
        return job

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
        default_retry = None if spec.task in BUILT_IN else RUN_RETRY
        # The schedule may not be in memory when the run starts or fails.
        named = msgspec.structs.replace(spec.options, schedule=run.schedule)
        options = self._fill_options(spec.task, named, default_retry)
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

    def make_event_job(self, spec: JobSpec, facts: Facts, trigger: Trigger, now: int) -> Job:
        """Make the job of an event. Its own failure is no event, so there are no chains.

        A webhook that cannot be reached for a moment must not lose the event, so without a policy
        of its own even an http job is retried.
        """
        options = self._fill_options(spec.task, spec.options, TASK_RETRY)
        options = msgspec.structs.replace(options, on_failure=None)
        job = self._fill(spec, options, now, now)
        if self._page_url:
            facts = facts.linked(self._page_url)
        job.payload = add_facts(spec.task, spec.payload, facts)
        job.trigger = trigger
        self._jobs.add(job)
        return job

    def _fill(self, spec: JobSpec, options: Options, due_at: int, now: int) -> Job:
        job = self._jobs.make(
            self._ids.next(now),
            spec.task,
            spec.queue,
            spec.payload,
            spec.priority,
            options,
            _SCHEDULED if due_at > now else _QUEUED,
            now,
            due_at,
        )
        job.rank = self._jobs.rank(job)
        job.offset_us = self._jobs.offset_us
        job.expires_at = spec.expires_at
        if spec.expires_in_us is not None:
            job.expires_at = now + spec.expires_in_us
            job.expires_elapsed = True
        return job

    def _fill_options(
        self, task: str, options: Options, default_retry: Retry | None = None
    ) -> Options:
        """Complete the options with the task's delivery, retry policy, timeout and keep.

        default_retry applies if neither the job nor its task has a policy (None: TASK_RETRY).
        """
        is_plain = options is PLAIN and default_retry is None
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
            on_failure=options.on_failure or defaults.on_failure,
            keep=options.keep.or_else(defaults.keep) if options.keep else defaults.keep,
            at_most_once=at_most_once or None,
        )
        if is_plain:
            if len(self._plain) >= _TASKS_REMEMBERED_MAX:
                self._plain.clear()
            self._plain[task] = filled
        return filled
