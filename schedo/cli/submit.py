"""`schedo submit`: submits a job of any task."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.job_options import job_options
from schedo.cli.names import TASK
from schedo.cli.submission import check_times, submit_job, wait_option
from schedo.cli.value_types import JsonValue
from schedo.client.sync import Client

_NOTHING_GIVEN = object()


def task_and_payload(function: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments TASK and KEY=VALUE and the option --payload; see read_payload."""
    for decorate in (
        click.option(
            "--payload",
            type=JsonValue(),
            metavar="JSON",
            default=_NOTHING_GIVEN,
            show_default=False,
            help="The whole payload as JSON, instead of KEY=VALUE.",
        ),
        click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]..."),
        click.argument("task", type=TASK),
    ):
        function = decorate(function)
    return function


def read_payload(arguments: Sequence[str], payload: object) -> object:
    """Return the payload of KEY=VALUE or --payload; raise UsageError if both are given."""
    if payload is _NOTHING_GIVEN:
        return _read_arguments(arguments) if arguments else None
    if arguments:
        raise click.UsageError("give either KEY=VALUE or --payload")
    return payload


@click.command()
@task_and_payload
@job_options
@wait_option
@as_json
@connected
def submit(
    client: Client,
    task: str,
    arguments: tuple[str, ...],
    payload: object,
    is_json: bool,
    **options: Any,
) -> None:
    """Submit a job of TASK, as in: schedo submit send_email to=ada@example.org count=3

    A VALUE that is JSON (3, true, null, [1, 2], {"a": 1}, "3") is that value; any other is text.
    With --wait, this command prints the result, and the exit code is 1 if the job did not complete.
    """
    check_times(options, "delay", "run_at")
    submit_job(client, task, read_payload(arguments, payload), options, is_json=is_json)


def _read_arguments(arguments: Iterable[str]) -> dict[str, object]:
    payload: dict[str, object] = {}
    for argument in arguments:
        key, value = _read_argument(argument)
        if key in payload:
            raise click.BadParameter(f"{key!r} is given twice", param_hint="KEY=VALUE")
        payload[key] = value
    return payload


def _read_argument(text: str) -> tuple[str, object]:
    """Return the key and the value of KEY=VALUE; raise BadParameter if the text has no key."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="KEY=VALUE")
    try:
        return key, json.loads(value, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return key, value


def _refuse_constant(name: str) -> object:
    """Refuse NaN and the infinities, which are not JSON: they are read as text."""
    raise ValueError(name)
