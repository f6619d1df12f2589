"""A frame of `schedo top` as lines of text, fitted to the terminal."""

from __future__ import annotations

from collections.abc import Mapping

import click

from schedo.cli.escapes import escape, truncate
from schedo.cli.sizes import render_size
from schedo.cli.tables import render_table
from schedo.cli.times import render_span, render_time
from schedo.cli.top_figures import FAILING_MAX, SCHEDULES_MAX, Distribution, Figures, QueueStats
from schedo.core.limits import SECOND

_QUEUE_HEADERS = (
    *("QUEUE", "STATE", "RUNNING", "LIMIT", "QUEUED", "LATER", "STARTS/S"),
    *("DELAY P50", "P99", "COMMIT P50", "P99"),
)
_LATENESS = {"timer": "lateness    timers  ", "submit": "            at once "}


def render_frame(
    figures: Figures, url: str, now: int, *, width: int | None = None, is_coloured: bool = False
) -> list[str]:
    """Return the lines, at most `width` columns wide; `now` is in microseconds."""
    lines = [
        f"schedo {figures.version} at {url}"
        f"   rates over {render_span(int(figures.interval_s * SECOND))}",
        _render_readiness(figures),
        f"epoch {figures.epoch}   up {render_span(int(figures.uptime_s) * SECOND)}"
        f"   memory {render_size(figures.rss_bytes)}   cpu {figures.cpu_share:.0%}"
        f"   files {figures.open_fds}   store {render_size(figures.store_bytes)}",
        "",
        *_render_rates(figures),
    ]
    lines = [line if width is None else truncate(escape(line), width) for line in lines]
    if is_coloured and figures.failing:
        last = len(lines) - 1
        lines[last] = click.style(lines[last], fg="red", bold=True)
    if is_coloured:
        lines[1] = click.style(lines[1], fg="red" if _has_problem(figures) else "green", bold=True)
    rows = [_queue_row(queue) for queue in figures.queues]
    lines += ["", *render_table(_QUEUE_HEADERS, rows, width, is_coloured, is_whole=False)]
    if figures.fires:
        fires = [
            (fire["schedule"], render_time(fire["at"], now), fire["rule"], fire["task"])
            for fire in figures.fires
        ]
        headers = ("NEXT FIRE", "AT", "RULE", "TASK")
        lines += ["", *render_table(headers, fires, width, is_whole=False)]
    if figures.has_more_schedules:
        note = f"of the first {SCHEDULES_MAX:,} schedules by name"
        lines.append(note if width is None else truncate(note, width))
    return lines


def fit_height(lines: list[str], height: int) -> list[str]:
    """Return the first lines, without the headers of a table whose rows all lie below them."""
    if len(lines) <= height:
        return lines
    kept = lines[:height]
    if lines[height - 2 : height - 1] == [""]:
        kept.pop()  # headers
    while kept and not kept[-1]:
        kept.pop()
    return kept


def mark_stale(
    lines: list[str], reason: str, age_s: float, *, width: int, is_coloured: bool = False
) -> list[str]:
    """Replace the first lines by the reason why there is no newer frame, and this one's age."""
    age = render_span(int(age_s) * SECOND)
    head = [truncate(escape(text), width) for text in (reason, f"the figures below are {age} old")]
    if is_coloured:
        head = [click.style(line, fg="red", bold=True) for line in head]
    return [*head, *lines[len(head) :]]


def _has_problem(figures: Figures) -> bool:
    return not figures.is_ready or bool(figures.reasons)


def _render_readiness(figures: Figures) -> str:
    state = "ready" if figures.is_ready else "not ready"
    return ": ".join([state, "; ".join(figures.reasons)]) if figures.reasons else state


def _render_rates(figures: Figures) -> list[str]:
    ended, troubles = (
        "   ".join(f"{name} {_rate(rate)}" for name, rate in rates.items())
        for rates in (figures.ended_per_s, figures.unsuccessful_per_s)
    )
    in_memory = "   ".join(f"{name} {count:,}" for name, count in figures.in_memory.items())
    batch = "-" if figures.commit_jobs is None else f"{figures.commit_jobs:,.1f}"
    return [
        f"jobs/s      submitted {_rate(figures.submitted_per_s)}   {ended}",
        f"attempts/s  started {_rate(figures.started_per_s)}   {troubles}",
        *(
            f"{_LATENESS[kind]}{_spread(lateness)}   of {_rate(lateness.per_s)}/s"
            for kind, lateness in figures.lateness.items()
        ),
        f"loop lag    {_spread(figures.loop_lag)}   worst {_time(figures.loop_lag_worst_s)}",
        f"commits     {_spread(figures.commit)}   {_rate(figures.commit.per_s)}/s"
        f"   jobs each {batch}   waiting {figures.uncommitted:,}",
        f"workers     {figures.workers}   slots {figures.slots:,}   busy {figures.slots_busy:,}",
        f"in memory   {in_memory}",
        *(["failing     " + _render_failing(figures.failing)] if figures.failing else []),
    ]


def _render_failing(failing: Mapping[str, int]) -> str:
    named = [f"{name} ({count:,} in a row)" for name, count in failing.items()]
    return ", ".join([*named, *(["..."] if len(named) == FAILING_MAX else [])])


def _queue_row(queue: QueueStats) -> tuple[str, ...]:
    waiting = queue.waiting
    return (
        queue.name,
        "paused" if queue.is_paused else "open",
        f"{queue.running:,}",
        "-" if queue.concurrency is None else f"{queue.concurrency:,}",
        f"{waiting['queued']:,}",
        f"{waiting['scheduled'] + waiting['retrying'] + waiting['blocked']:,}",
        _rate(queue.delay.per_s),
        _time(queue.delay.p50),
        _time(queue.delay.p99),
        _time(queue.commit_wait.p50),
        _time(queue.commit_wait.p99),
    )


def _spread(spread: Distribution) -> str:
    return f"p50 {_time(spread.p50)}   p99 {_time(spread.p99)}"


def _time(seconds: float | None) -> str:
    """Return a duration with two or three digits: "87µs", "1.2ms", "340ms", "2.5s"."""
    if seconds is None:
        return "-"
    if seconds == float("inf"):
        return ">10s"  # above the bound of the last bucket
    for factor, unit in ((1e6, "µs"), (1e3, "ms")):
        value = seconds * factor
        if value < 999.5:
            return f"{value:.1f}{unit}" if unit == "ms" and value < 9.95 else f"{value:.0f}{unit}"
    return f"{seconds:.1f}s"


def _rate(per_s: float) -> str:
    return f"{per_s:,.0f}" if per_s >= 10 or not per_s else f"{per_s:.1f}"
