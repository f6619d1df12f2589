"""The history of a schedule's runs as text, for `schedo schedules ls` and `show`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import click

from schedo.cli.escapes import escape
from schedo.cli.job_text import describe_error
from schedo.cli.tables import print_table
from schedo.cli.times import keep_distance, render_full, render_span, render_time
from schedo.client.messages import Record
from schedo.protocol.times import parse_duration

_NAMED_MAX = 5


def failed_in_row(schedule: Record) -> int:
    """Return how many runs have failed since the last completed one."""
    return int((schedule.get("runs") or {}).get("failed_in_row", 0))


def describe_last_run(schedule: Record) -> str:
    """Return the state in which the last run ended."""
    last = (schedule.get("runs") or {}).get("last") or []
    return str(last[0]["state"]) if last else "-"


def warn_of_failing(schedules: Sequence[Record]) -> None:
    """Name on stderr the schedules whose last runs have failed, the worst ones first."""
    failing = sorted(
        (each for each in schedules if failed_in_row(each)), key=failed_in_row, reverse=True
    )
    if not failing:
        return
    named = ", ".join(
        f"{escape(each['name'])} ({_count(failed_in_row(each))})" for each in failing[:_NAMED_MAX]
    )
    more = f" and {len(failing) - _NAMED_MAX} more" if len(failing) > _NAMED_MAX else ""
    verb = "schedule fails" if len(failing) == 1 else "schedules fail"
    click.echo(
        f"schedo: {len(failing)} {verb}: {named}{more}; why: schedo schedules show NAME", err=True
    )


def _count(failures: int) -> str:
    return "the last run failed" if failures == 1 else f"the last {failures} runs failed"


def render_facts(runs: Record, now: int) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of what `show` says about all runs."""
    counts = [
        f"{runs[state]} {state}"
        for state in ("completed", "failed", "cancelled", "expired")
        if runs.get(state)
    ]
    yield "runs", ", ".join(counts) or "none has ended"
    if runs.get("last_completed_at"):
        yield "last_completed_at", render_full(runs["last_completed_at"], now)
    if runs.get("failed_in_row"):
        yield "failed_in_row", str(runs["failed_in_row"])
    failure = runs.get("last_failure")
    if failure:
        what = describe_error(failure) or "failed"
        yield "last_failure", f"{what}\n{render_full(failure['at'], now)}, job {failure['job']}"


def print_last_runs(runs: Iterable[Record], now: int) -> None:
    """Print how the last runs ended, and how long each took."""
    rows = [
        (render_time(run["ended_at"], now), run["state"], _render_duration(run), run["job"])
        for run in runs
    ]
    if rows:
        click.echo()
        print_table(("ENDED", "STATE", "TOOK", "JOB"), rows, {"ENDED": keep_distance})


def _render_duration(run: Record) -> str:
    return render_span(parse_duration(run["duration"])) if "duration" in run else "-"
