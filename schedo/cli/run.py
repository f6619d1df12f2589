"""`schedo run`: submits a command; with --wait it prints its output and exits with its code."""

from __future__ import annotations

import signal
from typing import Any

import click

from schedo.cli.argv import ArgvCommand, read_command
from schedo.cli.connection import as_json, connected
from schedo.cli.escapes import escape
from schedo.cli.job_options import SHARED_FIELDS, SINGLE_FIELDS, given, job_options
from schedo.cli.job_output import latest_attempt, write_outputs
from schedo.cli.schedules import announce
from schedo.cli.tables import print_json
from schedo.cli.times import read_now, read_time, render_time
from schedo.client.errors import job_failed
from schedo.client.records import JobView
from schedo.client.sync import Client, SyncJobHandle
from schedo.core.states import State
from schedo.errors import SchedoError
from schedo.protocol.times import parse_instant

_INTERRUPTED = 130


@click.command(cls=ArgvCommand)
@click.argument("command", nargs=-1)
@click.option("--cron", metavar="EXPR", help="Make a schedule; requires --name.")
@click.option("--tz", help="Time zone of --cron.  [default: UTC]")
@click.option("--name", help="Name of the schedule of --cron.")
@job_options
@click.option("--cwd", metavar="DIR", help="Working directory of the command.")
@click.option(
    "--wait", "is_waiting", is_flag=True, help="Wait for the end, and exit with the command's code."
)
@as_json
@connected
def run(client: Client, command: tuple[str, ...], is_json: bool, **options: Any) -> None:
    """Submit a command: 'a shell line', or -- program argument ...

    The server or one of its workers runs it. With --wait, this command prints the output and exits
    with the exit code of the command.
    """
    words = read_command(command)
    if words is None:
        raise click.UsageError("give a command: 'a shell line', or -- program argument ...")
    payload = {"command": words, **given(options, "cwd")}
    _check(options)
    if options["cron"] is not None:
        spec = {"task": "shell", "payload": payload, **given(options, "cron", "tz", *SHARED_FIELDS)}
        schedule, is_new = client.put_schedule(options["name"], **spec)
        announce(schedule, "created" if is_new else "up to date", is_json=is_json)
        return
    fields = given(options, *SINGLE_FIELDS, *SHARED_FIELDS)
    if "run_at" in fields:
        fields["run_at"] = _read_at(fields["run_at"])
    if fields.pop("broadcast", False):
        _show_broadcast(client.broadcast("shell", payload, **fields), is_json=is_json)
        return
    job = client.submit("shell", payload, **fields)
    if options["is_waiting"]:
        click.get_current_context().exit(_wait(client, job.id, is_json))
    if is_json:
        print_json(job.record)
    else:
        click.echo(_describe(job))


def _show_broadcast(items: list[SyncJobHandle | SchedoError], *, is_json: bool) -> None:
    """Print the job of each worker; raise the first error of a rejected job."""
    errors = [item for item in items if isinstance(item, SchedoError)]
    jobs = [item for item in items if not isinstance(item, SchedoError)]
    if is_json:
        print_json([job.record for job in jobs])
    else:
        for job in jobs:
            click.echo(_describe(job))
    if errors:
        raise errors[0]


def _read_at(text: str) -> str:
    time_text = read_time(text, "--at")
    if parse_instant(time_text) < read_now():
        click.echo(f"schedo: warning: {escape(text)} has passed; the job is due now", err=True)
    return time_text


def _check(options: dict[str, Any]) -> None:
    times = [name for name in ("delay", "run_at", "cron") if options[name] is not None]
    if len(times) > 1:
        raise click.UsageError("give only one of --in, --at and --cron")
    if options["cron"] is None:
        extra = next((name for name in ("name", "tz") if options[name] is not None), None)
        if extra:
            raise click.UsageError(f"--{extra} requires --cron")
    elif options["name"] is None:
        raise click.UsageError("--cron makes a schedule; name it with --name")
    elif single := given(options, *SINGLE_FIELDS):
        raise click.UsageError(
            f"--{next(iter(single)).replace('_', '-')} cannot be used with --cron"
        )
    elif options["is_waiting"]:
        raise click.UsageError("--wait cannot be used with --cron: a schedule does not end")
    if options["is_waiting"] and options["broadcast"]:
        raise click.UsageError("--wait cannot be used with --broadcast, which makes several jobs")


def _describe(job: JobView) -> str:
    line = f"{escape(job.id)}  {escape(job.record['state'])}"
    if job.state is State.SCHEDULED:
        line += f" for {render_time(job.record.get('scheduled_at'), read_now())}"
    return line


def _wait(client: Client, job_id: str, is_json: bool) -> int:
    """Wait for the end of the job, print its output, and return the exit code of its command."""
    try:
        job = client.wait(job_id)
    except KeyboardInterrupt:
        click.echo(f"schedo: interrupted; job {escape(job_id)} continues", err=True)
        return _INTERRUPTED
    if is_json:
        print_json(job.record)
    else:
        write_outputs(latest_attempt(client.output(job_id)))
    code = find_exit_code(job)
    if code is None:
        click.echo(f"schedo: {escape(str(job_failed(job.record)))}", err=True)
        return 1
    return code


def find_exit_code(job: JobView) -> int | None:
    """Return the exit code that a shell would show, or None if the command did not run."""
    if job.state is State.COMPLETED:
        result = job.record.get("result")
        return int(result.get("exit_code", 0)) if isinstance(result, dict) else 0
    error = job.record.get("error") or {}
    if job.state is State.FAILED and isinstance(error.get("exit_code"), int):
        return int(error["exit_code"])
    if job.state is State.FAILED and error.get("signal") in signal.Signals.__members__:
        return 128 + signal.Signals[error["signal"]]
    return None
