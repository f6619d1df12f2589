"""`schedo run`: submits a command; with --wait it prints its output and exits with its code."""

from __future__ import annotations

from typing import Any

import click

from schedo.cli.argv import ArgvCommand, read_command
from schedo.cli.connection import as_json, connected
from schedo.cli.job_options import SHARED_FIELDS, SINGLE_FIELDS, given, job_options
from schedo.cli.job_text import describe_effect
from schedo.cli.schedules import announce
from schedo.cli.submission import check_times, submit_job, wait_option
from schedo.cli.value_types import CRON
from schedo.client.sync import Client


@click.command(cls=ArgvCommand)
@click.argument("command", nargs=-1)
@click.option("--cron", type=CRON, metavar="EXPR", help="Make a schedule; requires --name.")
@click.option("--tz", help="Time zone of --cron.  [default: UTC]")
@click.option("--name", help="Name of the schedule of --cron.")
@job_options
@click.option("--cwd", metavar="DIR", help="Working directory of the command.")
@wait_option
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
    check_times(options, "delay", "run_at", "cron")
    _check_cron(options)
    if options["cron"] is not None:
        spec = {"task": "shell", "payload": payload, **given(options, "cron", "tz", *SHARED_FIELDS)}
        schedule, _ = client.put_schedule(options["name"], **spec)
        announce(schedule, describe_effect(schedule), is_json=is_json)
        return
    submit_job(client, "shell", payload, options, is_json=is_json)


def _check_cron(options: dict[str, Any]) -> None:
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
