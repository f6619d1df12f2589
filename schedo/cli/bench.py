"""`schedo bench`: puts load on a running server and says how it coped."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from schedo.cli.connection import as_json, make_client, server_options
from schedo.cli.escapes import escape
from schedo.cli.failures import explain
from schedo.cli.latency import count_buckets, render_histogram, render_us, summarize
from schedo.cli.load import Course, Plan, Progress, run_load
from schedo.cli.tables import print_json, print_table
from schedo.client.asynchronous import AsyncClient
from schedo.core.lifecycle import State
from schedo.core.limits import BATCH_JOBS_MAX, SECOND
from schedo.wire.times import parse_duration

_JOBS_MAX = 10_000_000
_CONCURRENCY_MAX = 1_000
_REFUSALS_SHOWN = 3
_MEANINGS = {
    "accepted": "request to answer, by this machine's clock",
    "started": "due to start, by the server's clock",
    "finished": "due to end, by the server's clock",
}


@click.command()
@click.option("-n", "--count", type=click.IntRange(1, _JOBS_MAX), default=1_000, help="Jobs.")
@click.option("--command", help="A line for the shell that each job runs.")
@click.option("--task", help="Or a task of the server's application, with --payload.")
@click.option("--payload", metavar="JSON", help="The payload of each job of --task.")
@click.option("--queue", help="The queue to wait in.")
@click.option("--delay", default="0", metavar="DURATION", help="Run them this much later.")
@click.option(
    "--batch", type=click.IntRange(1, BATCH_JOBS_MAX), default=1, help="Jobs in a request."
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, _CONCURRENCY_MAX),
    default=16,
    help="Requests on their way at a time.",
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Submit so many a second.")
@click.option(
    "--patience",
    default="60s",
    metavar="DURATION",
    help="When nothing has ended for so long, the rest is lost.",
)
@click.option("--histogram", "has_histogram", is_flag=True, help="Draw how the times are spread.")
@as_json
@server_options
def bench(
    url: str, token_file: str | None, is_json: bool, has_histogram: bool, **options: Any
) -> None:
    """Submit many jobs to a running server, follow them to the end, and report times.

    Exit code 1 if a job was refused, did not complete, or was not seen to end.
    """
    plan = _make_plan(options)
    client = make_client(AsyncClient, url, token_file)
    course = asyncio.run(_run(client, plan))
    if is_json:
        print_json(_describe(plan, course))
    else:
        _print_course(plan, course, has_histogram)
    if course.lost or course.refused or course.count(State.COMPLETED) < len(course.ended):
        click.get_current_context().exit(1)


def _make_plan(options: dict[str, Any]) -> Plan:
    job: dict[str, Any] = {"task": options["task"]}
    if (options["command"] is None) == (options["task"] is None):
        raise click.UsageError("give either --command or --task")
    if options["command"] is not None:
        if options["payload"] is not None:
            raise click.UsageError("--payload goes with --task")
        job = {"task": "shell", "payload": {"command": options["command"]}}
    elif options["payload"] is not None:
        job["payload"] = _read_json(options["payload"])
    delay_us = _read_duration("--delay", options["delay"])
    if delay_us:
        job["delay"] = options["delay"]
    if options["queue"] is not None:
        job["queue"] = options["queue"]
    return Plan(
        job=job,
        count=options["count"],
        batch=options["batch"],
        concurrency=options["concurrency"],
        rate=options["rate"],
        patience_s=(_read_duration("--patience", options["patience"]) + delay_us) / SECOND,
        tag=f"bench-{secrets.token_hex(6)}",
    )


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"this is not JSON: {error}", param_hint="--payload") from error


def _read_duration(option: str, text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from error


async def _run(client: AsyncClient, plan: Plan) -> Course:
    async with client:
        with _progress("submitted", plan.count) as submitted, _progress("ended", plan.count) as end:
            return await run_load(client, plan, submitted, end)


@contextmanager
def _progress(label: str, count: int) -> Iterator[Progress]:
    """Show how far it is, on stderr if that is a terminal; the bar appears with the first news."""
    if not sys.stderr.isatty():
        yield lambda more: None
        return
    bar = click.progressbar(length=count, label=f"{label:<9}", file=sys.stderr)
    has_begun = False

    def told(more: int) -> None:
        nonlocal has_begun
        if more:
            has_begun = True
            bar.update(more)

    yield told
    if has_begun:
        bar.render_finish()


def _times(course: Course) -> dict[str, list[int]]:
    return {
        "accepted": course.accepted_us,
        "started": course.started_us(),
        "finished": course.finished_us(),
    }


def _rate(count: int, us: int) -> float:
    return count * SECOND / us if us else 0.0


def _describe(plan: Plan, course: Course) -> dict[str, Any]:
    """Return everything as JSON data; durations in microseconds."""
    times = _times(course)
    return {
        "tag": plan.tag,
        "jobs": plan.count,
        "accepted": len(course.ids),
        "refused": len(course.refused),
        "completed": course.count(State.COMPLETED),
        "failed": len(course.ended) - course.count(State.COMPLETED),
        "lost": course.lost,
        "accepted_us": course.submitting_us,
        "ended_us": course.whole_us(),
        "accepted_per_second": round(_rate(len(course.ids), course.submitting_us), 1),
        "ended_per_second": round(_rate(len(course.ended), course.whole_us()), 1),
        "latency_us": {name: summarize(values) for name, values in times.items()},
        "histogram_us": {
            name: {str(bound): count for bound, count in count_buckets(values)}
            for name, values in times.items()
        },
    }


def _print_course(plan: Plan, course: Course, has_histogram: bool) -> None:
    accepted, ended = len(course.ids), len(course.ended)
    completed = course.count(State.COMPLETED)
    _print_rate("accepted", accepted, course.submitting_us)
    _print_rate("ended", ended, course.whole_us())
    click.echo()
    times = {name: values for name, values in _times(course).items() if values}
    print_table(
        ("", "P50", "P95", "P99", "MAX", ""),
        [
            (name, *map(render_us, summarize(values).values()), _MEANINGS[name])
            for name, values in times.items()
        ],
    )
    if has_histogram:
        for name, values in times.items():
            click.echo("\n".join(["", f"{name}: {_MEANINGS[name]}", *render_histogram(values)]))
    click.echo()
    for error in course.refused[:_REFUSALS_SHOWN]:
        click.echo(f"schedo: refused: {escape(explain(error))}", err=True)
    troubles = {
        "refused": len(course.refused),
        "not completed": ended - completed,
        "lost": course.lost,
    }
    told = [f"{count:,} {name}" for name, count in troubles.items() if count]
    found = f"; see: schedo jobs ls --tag {plan.tag}" if told else ""
    click.echo(", ".join([f"{completed:,} of {plan.count:,} jobs completed", *told]) + found)


def _print_rate(name: str, count: int, us: int) -> None:
    click.echo(f"{name:<9} {count:,} jobs in {render_us(us)}: {_rate(count, us):,.0f}/s")
