"""GET /metrics: the measurements of the engine, for Prometheus and for `schedo top`.

Labels are queues, schedules, states, outcomes, decisions and kinds of indexes, never jobs, and at
most QUEUES_NAMED_MAX queues and SCHEDULES_MEASURED_MAX schedules have a label of their own: the
number of series stays bounded.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Literal

from schedo.core.bulk import BulkAction
from schedo.core.lateness import DURATION_BOUNDS_US, START_KINDS, TARGET, count_within
from schedo.core.limits import SECOND
from schedo.core.model import PauseScope
from schedo.core.run_history import ScheduleStatus
from schedo.core.series import lateness_of
from schedo.core.states import State
from schedo.engine.bulk_runner import OUTCOMES, BulkRunner
from schedo.engine.gauges import Gauges
from schedo.engine.metrics import Histogram, Metrics
from schedo.engine.run_times import OTHER_TASKS, RUN_BOUNDS_US, TASKS_NAMED_MAX, RunTimes
from schedo.engine.sharing import SharedCall, in_steps
from schedo.protocol.prometheus import (
    CONTENT_TYPE,
    Family,
    Sample,
    histogram_samples,
    render_exposition,
    render_labels,
)
from schedo.web.context import AppContext
from schedo.web.handlers.cluster import render_cluster
from schedo.web.handlers.expectation_metrics import render_expectations
from schedo.web.handlers.process_metrics import read_process
from schedo.web.handlers.schedule_metrics import read_schedules, render_schedules
from schedo.web.handlers.store import render_database
from schedo.web.http import Request, Response
from schedo.web.tenure import Tenure

if TYPE_CHECKING:
    from schedo.engine.observing import Observer

_BOUNDS_S = tuple(bound / SECOND for bound in DURATION_BOUNDS_US)


async def get_metrics(context: AppContext, request: Request) -> Response:
    if context.metrics is None:
        context.metrics = SharedCall(partial(_render_metrics, context))
    return Response(200, await context.metrics.result(), content_type=CONTENT_TYPE)


async def _render_metrics(context: AppContext) -> bytes:
    return render_exposition(await read_families(context))


async def read_families(context: AppContext) -> list[Family]:
    """Return all metrics; the first call lets the run times be measured."""
    listeners = context.engine.metrics.listeners
    if context.run_times.note not in listeners:
        listeners.append(context.run_times.note)
    gauges = await context.engine.gauges()
    schedules = await read_schedules(context.engine.store)
    return await in_steps(_read_all(context, gauges, schedules))


def _read_all(
    context: AppContext, gauges: Gauges, schedules: list[ScheduleStatus]
) -> Generator[None, None, list[Family]]:
    families = [
        *_render_counts(context.engine.metrics),
        *_render_operations(context.engine.bulk),
        *_render_histograms(context.engine.metrics),
        _render_run_times(context.run_times),
        *_render_objective(context),
    ]
    yield
    families += [*_render_state(context, gauges), *_render_queues(gauges), *read_process()]
    yield
    families += render_schedules(schedules)
    families += render_expectations(context.engine.expectations.all())
    families += render_database(context.engine.series.database.last, context.engine.clock.now())
    cluster = context.cluster
    families += render_cluster(None if cluster is None else cluster.describe())
    families.append(_render_telemetry(context.engine.monitor.observer))
    return families


def _render_telemetry(observer: Observer | None) -> Family:
    text = (
        "Spans for OpenTelemetry that were lost, because more waited than the queue holds, or"
        " because the collector refused or could not be reached; 0 without --otel."
    )
    return _one("schedo_otel_dropped_total", text, 0 if observer is None else observer.dropped)


def _render_counts(metrics: Metrics) -> list[Family]:
    outcomes = {"completed": metrics.ended[State.COMPLETED], **metrics.unsuccessful}
    return [
        _one("schedo_attempts_started_total", "Attempts handed to workers.", metrics.starts),
        _each("schedo_attempts_ended_total", "Ended attempts.", "outcome", outcomes.items()),
        _each("schedo_jobs_ended_total", "Ended jobs.", "state", metrics.ended.items()),
        _each(
            "schedo_schedule_instants_total",
            "Instants of schedules by what was decided about them.",
            "decision",
            metrics.decisions.items(),
        ),
    ]


def _render_operations(bulk: BulkRunner) -> list[Family]:
    samples = [
        Sample(bulk.jobs[action, outcome], render_labels(action=action, outcome=outcome))
        for action in BulkAction
        for outcome in OUTCOMES
    ]
    text = "Jobs of operations on many jobs, by action and outcome."
    return [
        Family("schedo_operation_jobs_total", "counter", text, samples),
        _one("schedo_operations_running", "Operations on many jobs.", bulk.count_active()),
    ]


def _render_histograms(metrics: Metrics) -> list[Family]:
    jobs = metrics.commit_jobs
    delays = {queue: times.start_delay for queue, times in metrics.queues.items()}
    waits = {queue: times.commit_wait for queue, times in metrics.queues.items()}
    return [
        _times_by(
            "queue",
            "schedo_start_delay_seconds",
            "From due to handed to a worker, whatever the attempt waited for.",
            delays,
        ),
        _times_by(
            "kind",
            "schedo_start_lateness_seconds",
            "From due to handed to a worker, for attempts that waited for no slot.",
            metrics.start_lateness,
        ),
        _times_by("queue", "schedo_commit_wait_seconds", "From submitted to durable.", waits),
        _times("schedo_commit_seconds", "How long commits take.", metrics.commit_time),
        Family(
            "schedo_commit_jobs",
            "histogram",
            "Jobs in one commit.",
            histogram_samples(jobs.bounds, jobs.counts, jobs.total),
        ),
        _times(
            "schedo_loop_lag_seconds",
            "From when a turn of the timer loop was due to when it began.",
            metrics.loop_lag,
        ),
    ]


def _render_run_times(run_times: RunTimes) -> Family:
    bounds = tuple(bound / SECOND for bound in RUN_BOUNDS_US)
    samples = [
        sample
        for task, times in run_times.by_task.items()
        for sample in histogram_samples(
            bounds, times.counts, times.total / SECOND, render_labels(task=task)
        )
    ]
    text = "How long attempts run, since the first request for the metrics."
    return Family("schedo_run_seconds", "histogram", text, samples)


def _render_objective(context: AppContext) -> list[Family]:
    objective_us = context.settings.lateness_objective_us
    starts = context.engine.series.sums_of_day()
    budgets = {kind: count_within(lateness_of(starts, kind), objective_us) for kind in START_KINDS}
    return [
        _one(
            "schedo_lateness_objective_seconds",
            f"How late {TARGET:.1%} of the attempts may start.",
            objective_us / SECOND,
        ),
        _each(
            "schedo_lateness_within_objective_ratio",
            "The share of the starts of the last day that kept the objective; 1 without starts.",
            "kind",
            [(kind, budget.share_within) for kind, budget in budgets.items()],
        ),
        _each(
            "schedo_lateness_budget_left_ratio",
            "The part of the day's error budget that is left; negative: more starts were late.",
            "kind",
            [(kind, budget.left) for kind, budget in budgets.items()],
        ),
    ]


def _render_state(context: AppContext, gauges: Gauges) -> list[Family]:
    health = context.engine.health()
    is_ready = health.ready and not context.draining.is_set()
    paused = {pause.scope for pause in context.engine.pauses()}
    version = render_labels(version=context.settings.version)
    return [
        Family("schedo_info", "gauge", "The version.", [Sample(1, version)]),
        _one("schedo_ready", "Whether jobs are accepted and fired on time.", int(is_ready)),
        _each(
            "schedo_paused",
            "Whether the whole server is paused, by what the pause stops.",
            "scope",
            [(scope.value, int(scope in paused)) for scope in PauseScope],
        ),
        *_render_tenure(context.tenure, health.epoch),
        _one(
            "schedo_loop_lag_recent_seconds",
            "The worst lag of the last second or two.",
            gauges.lag_us / SECOND,
        ),
        _one(
            "schedo_clock_behind_seconds",
            "How far the clock is behind the newest instant in the store.",
            gauges.clock_behind_us / SECOND,
        ),
        _one(
            "schedo_clock_steps_total",
            "How often the clock was set by half a second or more.",
            context.engine.metrics.clock_steps,
        ),
        _each(
            "schedo_index_entries",
            "Entries of the paged indexes in memory.",
            "index",
            gauges.index_entries.items(),
        ),
        _each(
            "schedo_backlog_age_seconds",
            "How long the oldest of what is overdue and still to be moved has been due; 0: none.",
            "kind",
            [(kind, age_us / SECOND) for kind, age_us in gauges.backlogs_us.items()],
        ),
        _each(
            "schedo_unserved_jobs",
            "Due jobs in memory that no connected worker can run.",
            "task",
            _name_tasks(gauges.unserved).items(),
        ),
        _one(
            "schedo_http_bytes_in_flight",
            "Bytes of requests and responses, of all connections.",
            context.in_flight.total,
        ),
        _one(
            "schedo_http_bytes_in_flight_max",
            "How many there may be; beyond it, requests wait or are answered 429.",
            context.in_flight.bytes_max,
        ),
        *_render_amounts(gauges),
    ]


def _name_tasks(unserved: Mapping[str, int]) -> Mapping[str, int]:
    """Return the tasks with the most jobs, and all others together as "other"."""
    ranked = sorted(unserved.items(), key=lambda item: (-item[1], item[0]))
    others = sum(count for _, count in ranked[TASKS_NAMED_MAX:])
    return dict(ranked[:TASKS_NAMED_MAX]) | ({OTHER_TASKS: others} if others else {})


def _render_amounts(gauges: Gauges) -> list[Family]:
    return [
        _one("schedo_job_records", "Job records in memory.", gauges.records),
        _one("schedo_uncommitted_jobs", "Jobs not yet on their way to disk.", gauges.uncommitted),
        _one("schedo_workers", "Attached workers.", gauges.workers),
        _one("schedo_worker_slots", "Attempts they can run at once.", gauges.slots),
        _one("schedo_worker_slots_busy", "Attempts they run.", gauges.slots_busy),
        _one("schedo_store_bytes", "What the store takes on disk.", gauges.store_bytes),
    ]


def _render_tenure(tenure: Tenure, epoch: int) -> list[Family]:
    return [
        _each(
            "schedo_role",
            "Whether this server is the active one; a standby responds to no request.",
            "role",
            [("active", 1), ("standby", 0)],
        ),
        _one(
            "schedo_takeovers_total",
            "Take-overs of this store by standbys, in a row of servers.",
            tenure.takeovers,
        ),
        _one(
            "schedo_takeover_seconds",
            "How long the take-over by this server took; 0: it found the store free.",
            tenure.takeover_us / SECOND,
        ),
        _one("schedo_epoch", "How often the server started or recovered.", epoch),
    ]


def _render_queues(gauges: Gauges) -> list[Family]:
    queues = gauges.queues
    waiting = [
        Sample(count, render_labels(queue=name, state=state.value))
        for name, queue in queues.items()
        for state, count in queue.waiting.items()
    ]
    running = {name: queue.running for name, queue in queues.items()}
    paused = {name: queue.paused for name, queue in queues.items()}
    oldest = {name: queue.oldest_due_us / SECOND for name, queue in queues.items()}
    return [
        Family("schedo_queue_waiting_jobs", "gauge", "Jobs that wait, in the store.", waiting),
        _each("schedo_queue_running_jobs", "Jobs that run.", "queue", running.items()),
        _each("schedo_queue_paused", "Whether the queue is paused.", "queue", paused.items()),
        _each(
            "schedo_queue_oldest_due_seconds",
            "How long the oldest due job in memory has been due; 0: none is there.",
            "queue",
            oldest.items(),
        ),
    ]


def _one(name: str, text: str, value: float) -> Family:
    return Family(name, _kind_of(name), text, [Sample(value)])


def _each(name: str, text: str, label: str, values: Iterable[tuple[str, float]]) -> Family:
    samples = [Sample(value, render_labels(**{label: key})) for key, value in values]
    return Family(name, _kind_of(name), text, samples)


def _kind_of(name: str) -> Literal["counter", "gauge"]:
    return "counter" if name.endswith("_total") else "gauge"


def _times(name: str, text: str, histogram: Histogram) -> Family:
    return Family(name, "histogram", text, _in_seconds(histogram))


def _times_by(label: str, name: str, text: str, histograms: Mapping[str, Histogram]) -> Family:
    samples = [
        sample
        for value, histogram in histograms.items()
        for sample in _in_seconds(histogram, render_labels(**{label: value}))
    ]
    return Family(name, "histogram", text, samples)


def _in_seconds(histogram: Histogram, labels: str = "") -> list[Sample]:
    return histogram_samples(_BOUNDS_S, histogram.counts, histogram.total / SECOND, labels)
