"""`schedo bench`: puts load on a running server and reports the times."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from schedo.cli.connection import as_json, server_options
from schedo.cli.errors import explain
from schedo.cli.escapes import escape
from schedo.cli.follow import INTERRUPTED
from schedo.cli.json_text import parse_json
from schedo.cli.latency import count_buckets, render_histogram, render_us, summarize
from schedo.cli.load import LoadPlan, LoadResult, Progress, run_load
from schedo.cli.make_client import make_client
from schedo.cli.numbers import FiniteRange
from schedo.cli.tables import print_json, print_table, print_text
from schedo.cli.value_types import DURATION
from schedo.client.aio import AsyncClient
from schedo.core.limits import BATCH_JOBS_MAX, SECOND
from schedo.core.states import State
from schedo.errors import SchedoError
from schedo.protocol.times import parse_duration

_JOBS_MAX = 10_000_000
_CONCURRENCY_MAX = 1_000
_REFUSALS_SHOWN = 3
_MEANINGS = {  # short, because the table must fit into 80 columns
    "accepted": "request to response, client's clock",
    "started": "due to start, server's clock",
    "finished": "due to end, server's clock",
}


@click.command()
@click.option(
    "-n",
    "--count",
    type=click.IntRange(1, _JOBS_MAX),
    default=1_000,
    show_default=True,
    help="Number of jobs.",
)
@click.option("--command", help="Shell line that each job runs.")
@click.option("--task", help="Task that each job runs, instead of --command.")
@click.option("--payload", metavar="JSON", help="Payload of each job of --task.")
@click.option("--queue", help="Queue of the jobs.")
@click.option(
    "--delay",
    default="0",
    show_default=True,
    type=DURATION,
    help="Delay of the jobs.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, BATCH_JOBS_MAX),
    default=1,
    show_default=True,
    help="Jobs in each request.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, _CONCURRENCY_MAX),
    default=16,
    show_default=True,
    help="Number of requests at once.",
)
@click.option(
    "--rate",
    type=FiniteRange(0, min_open=True),
    help="Maximum number of jobs to submit each second.",
)
@click.option(
    "--idle-timeout",
    default="60s",
    show_default=True,
    type=DURATION,
    help="Stop waiting when no job has ended for this time; unfinished jobs count as lost.",
)
@click.option("--histogram", "has_histogram", is_flag=True, help="Draw a histogram of the times.")
@as_json
@server_options
def bench(
    url: str, token_file: str | None, is_json: bool, has_histogram: bool, **options: Any
) -> None:
    """Submit many jobs to a running server, wait until they have ended, and report the times.

    The exit code is 1 if a job was rejected, did not complete, or did not end in time.
    """
    plan = _make_plan(options)
    client = make_client(AsyncClient, url, token_file)
    click.echo(f"schedo: the tag of the jobs is {plan.tag}", err=True)
    so_far: Counter[str] = Counter()
    try:
        result = asyncio.run(_run(client, plan, so_far))
    except (KeyboardInterrupt, SchedoError) as cause:
        _print_interrupted(plan, so_far, is_json)
        if isinstance(cause, SchedoError):
            raise
        click.get_current_context().exit(INTERRUPTED)
    for error in result.refused[:_REFUSALS_SHOWN]:
        click.echo(f"schedo: refused: {escape(explain(error))}", err=True)
    if is_json:
        print_json(_describe(plan, result))
    else:
        _print_result(plan, result, has_histogram)
    if result.lost or result.refused or result.count(State.COMPLETED) < len(result.ended):
        click.get_current_context().exit(1)


def _make_plan(options: dict[str, Any]) -> LoadPlan:
    job: dict[str, Any] = {"task": options["task"]}
    if (options["command"] is None) == (options["task"] is None):
        raise click.UsageError("give either --command or --task")
    if options["command"] is not None:
        if options["payload"] is not None:
            raise click.UsageError("--payload requires --task")
        job = {"task": "shell", "payload": {"command": options["command"]}}
    elif options["payload"] is not None:
        job["payload"] = _read_json(options["payload"])
    delay_us = parse_duration(options["delay"])
    if delay_us:
        job["delay"] = options["delay"]
    if options["queue"] is not None:
        job["queue"] = options["queue"]
    return LoadPlan(
        job=job,
        count=options["count"],
        batch=options["batch"],
        concurrency=options["concurrency"],
        rate=options["rate"],
        idle_timeout_s=(parse_duration(options["idle_timeout"]) + delay_us) / SECOND,
        tag=f"bench-{secrets.token_hex(6)}",
    )


def _read_json(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--payload") from error


async def _run(client: AsyncClient, plan: LoadPlan, so_far: Counter[str]) -> LoadResult:
    async with client:
        with (
            _progress("submitted", plan.count, so_far) as submitted,
            _progress("ended", plan.count, so_far) as ended,
        ):
            return await run_load(client, plan, submitted, ended)


@contextmanager
def _progress(label: str, count: int, so_far: Counter[str]) -> Iterator[Progress]:
    """Count the progress. On a terminal, show a progress bar from the first job on."""
    bar = click.progressbar(length=count, label=f"{label:<9}", file=sys.stderr)
    is_shown = sys.stderr.isatty()

    def advance(more: int) -> None:
        so_far[label] += more
        if more and is_shown:
            bar.update(more)

    try:
        yield advance
    finally:  # the bar hides the cursor, so it must end properly even after Ctrl-C
        if so_far[label] and is_shown:
            bar.render_finish()


def _print_interrupted(plan: LoadPlan, so_far: Counter[str], is_json: bool) -> None:
    """Print the progress so far, and the commands that find and cancel the remaining jobs."""
    submitted, ended = so_far["submitted"], so_far["ended"]
    if is_json:
        counts = {"submitted": submitted, "ended": ended}
        print_json({"tag": plan.tag, "jobs": plan.count, "interrupted": True, **counts})
    else:
        click.echo(
            f"interrupted: {submitted:,} of {plan.count:,} jobs were submitted and {ended:,} have"
            " ended; open requests may have submitted more"
        )
    find = f"schedo jobs ls --tag {plan.tag} --limit {plan.count}"
    cancel = f"schedo jobs cancel --tag {plan.tag} --yes"
    click.echo(f"schedo: to list the jobs:  {find}", err=True)
    click.echo(f"schedo: to cancel those that have not ended:  {cancel}", err=True)


def _times(result: LoadResult) -> dict[str, list[int]]:
    return {
        "accepted": result.accepted_us,
        "started": result.started_us(),
        "finished": result.finished_us(),
    }


def _ended_us(plan: LoadPlan, result: LoadResult) -> int:
    """Return the microseconds from the first due instant to the last end, by the server's clock."""
    return max(0, result.total_us() - parse_duration(plan.job.get("delay", "0")))


def _rate(count: int, us: int) -> float:
    return count * SECOND / us if us else 0.0


def _describe(plan: LoadPlan, result: LoadResult) -> dict[str, Any]:
    """Return the plan and its result as JSON data; durations are in microseconds."""
    times = _times(result)
    ended_us = _ended_us(plan, result)
    return {
        "tag": plan.tag,
        "jobs": plan.count,
        "accepted": len(result.ids),
        "refused": len(result.refused),
        "completed": result.count(State.COMPLETED),
        "failed": len(result.ended) - result.count(State.COMPLETED),
        "lost": result.lost,
        "accepted_us": result.submitting_us,
        "ended_us": ended_us,
        "accepted_per_second": round(_rate(len(result.ids), result.submitting_us), 1),
        "ended_per_second": round(_rate(len(result.ended), ended_us), 1),
        "latency_us": {name: summarize(values) for name, values in times.items()},
        "histogram_us": {
            name: {str(bound): count for bound, count in count_buckets(values)}
            for name, values in times.items()
        },
    }


def _print_result(plan: LoadPlan, result: LoadResult, has_histogram: bool) -> None:
    accepted, ended = len(result.ids), len(result.ended)
    completed = result.count(State.COMPLETED)
    _print_rate("accepted", accepted, result.submitting_us)
    _print_rate("ended", ended, _ended_us(plan, result))
    _print_times({name: values for name, values in _times(result).items() if values}, has_histogram)
    click.echo()
    troubles = {
        "refused": len(result.refused),
        "not completed": ended - completed,
        "lost": result.lost,
    }
    counts = [f"{count:,} {name}" for name, count in troubles.items() if count]
    is_findable = result.lost or completed < ended  # the server has no record of a refused job
    found = f"; see: schedo jobs ls --tag {plan.tag}" if is_findable else ""
    click.echo(", ".join([f"{completed:,} of {plan.count:,} jobs completed", *counts]) + found)


def _print_times(times: dict[str, list[int]], has_histogram: bool) -> None:
    if not times:
        return
    click.echo()
    print_table(
        ("", "P50", "P95", "P99", "MAX", ""),
        [
            (name, *map(render_us, summarize(values).values()), _MEANINGS[name])
            for name, values in times.items()
        ],
    )
    if has_histogram:
        for name, values in times.items():
            print_text("\n".join(["", f"{name}: {_MEANINGS[name]}", *render_histogram(values)]))


def _print_rate(name: str, count: int, us: int) -> None:
    print_text(f"{name:<9} {count:,} jobs in {render_us(us)}: {_rate(count, us):,.0f}/s")
