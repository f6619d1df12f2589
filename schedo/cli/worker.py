"""`schedo worker`: runs jobs of a server on this machine."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from schedo.cli.connection import DEFAULT_URL
from schedo.cli.errors import BadConfiguration, explain
from schedo.cli.value_types import DURATION
from schedo.client.tokens import read_token
from schedo.core.built_in import BUILT_IN
from schedo.errors import Invalid
from schedo.hardening import harden_process

_BUILT_IN = ", ".join(
    f"{name} if allowed" if task.permission else name for name, task in BUILT_IN.items()
)


def _read_pairs(
    context: click.Context, parameter: click.Parameter, values: Sequence[str]
) -> dict[str, str]:
    pairs = {}
    for value in values:
        name, sign, text = value.partition("=")
        if not sign or not name.strip():
            raise click.BadParameter(f"{value!r}: write it as name=value")
        pairs[name.strip()] = text.strip()
    return pairs


def _read_list(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> list[str] | None:
    if value is None:
        return None
    names = [item.strip() for item in value.split(",") if item.strip()]
    if not names:
        raise click.BadParameter("give at least one name, or omit the option for all")
    return names


@click.command()
@click.argument("app", required=False, metavar="[MODULE:NAME]", envvar="SCHEDO_APP")
@click.option(
    "--server",
    "--url",
    envvar="SCHEDO_URL",
    default=DEFAULT_URL,
    show_default=True,
    metavar="URL",
    help="URL of the server.",
)
@click.option(
    "--name",
    envvar="SCHEDO_WORKER_NAME",
    help="Unique name of the worker.  [default: HOST-PID]",
)
@click.option(
    "--tasks",
    envvar="SCHEDO_WORKER_TASKS",
    callback=_read_list,
    metavar="A,B",
    help=f"Run only these tasks.  [default: those of the app, {_BUILT_IN}]",
)
@click.option(
    "--queues",
    envvar="SCHEDO_WORKER_QUEUES",
    callback=_read_list,
    metavar="A,B",
    help="Run only jobs of these queues.  [default: all]",
)
@click.option(
    "--slots",
    envvar="SCHEDO_WORKER_SLOTS",
    type=click.IntRange(1, 10_000),
    default=16,
    show_default=True,
    help="How many jobs run at once.",
)
@click.option(
    "--label",
    "labels",
    envvar="SCHEDO_WORKER_LABELS",
    multiple=True,
    callback=_read_pairs,
    metavar="NAME=VALUE",
    help="Label of this machine, such as region=eu; repeatable.",
)
@click.option(
    "--resource",
    "resources",
    envvar="SCHEDO_WORKER_RESOURCES",
    multiple=True,
    callback=_read_pairs,
    metavar="NAME=AMOUNT",
    help="Resource of this machine, such as cpu=4 or memory=8GiB; repeatable.",
)
@click.option(
    "--allow-shell/--no-allow-shell",
    envvar="SCHEDO_ALLOW_SHELL",
    default=False,
    help="Allow jobs to run commands on this machine.",
)
@click.option(
    "--output-dir",
    envvar="SCHEDO_OUTPUT_DIR",
    metavar="DIR",
    help="Directory in which to also store the complete output of commands.",
)
@click.option(
    "--webhook-allow",
    envvar="SCHEDO_WEBHOOK_ALLOW",
    callback=_read_list,
    metavar="A,B",
    help="Private hosts, host:port or CIDR blocks that http jobs may call.",
)
@click.option(
    "--token-file",
    envvar="SCHEDO_TOKEN_FILE",
    metavar="FILE",
    help="File with the server's token or a worker token; or set SCHEDO_TOKEN.",
)
@click.option(
    "--ca-cert",
    envvar="SCHEDO_CA_CERT",
    metavar="FILE",
    help="PEM file of the only authorities to trust for https.  [default: those of the system]",
)
@click.option(
    "--session-timeout",
    envvar="SCHEDO_WORKER_SESSION_TIMEOUT",
    default="30s",
    show_default=True,
    type=DURATION,
    help="The server takes the worker for lost after this time without a request from it.",
)
@click.option(
    "--ready-file",
    envvar="SCHEDO_WORKER_READY_FILE",
    metavar="FILE",
    help="File that exists while the worker is connected and takes jobs, for supervisors.",
)
@click.option(
    "--drain-grace",
    "grace",
    envvar="SCHEDO_DRAIN_GRACE",
    default="25s",
    show_default=True,
    type=DURATION,
    help="How long running jobs may take to finish after SIGTERM.",
)
@click.option(
    "--prune",
    "prune_schedules",
    is_flag=True,
    help="Delete the schedules that the app's code no longer declares.",
)
@click.option(
    "--log-format",
    envvar="SCHEDO_LOG_FORMAT",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of log lines.",
)
@click.option(
    "--log-level",
    envvar="SCHEDO_LOG_LEVEL",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Lowest level to log.",
)
def worker(log_format: Any, log_level: str, **options: Any) -> None:
    """Run jobs of a server: the tasks of MODULE:NAME if given, and the built-in tasks.

    SIGTERM starts a drain: running jobs may finish within --drain-grace, and the server runs the
    others elsewhere. SIGHUP reads the token file again. Every option can also be set by a variable:
    SCHEDO_URL, SCHEDO_WORKER_NAME, SCHEDO_WORKER_SLOTS, SCHEDO_WORKER_LABELS="a=1 b=2" and so on.
    """
    harden_process()
    token_file = options.pop("token_file")
    token = os.environ.pop("SCHEDO_TOKEN", None)  # so that commands and handlers cannot read it
    target = options.pop("app")
    app = _import_app(target)
    from schedo.worker.remote.main import run_worker
    from schedo.worker.remote.worker import Worker

    def read_again() -> str | None:
        return read_token(token_file) if token_file else token

    try:
        options["token"] = read_again()
        options["webhook_allow"] = options["webhook_allow"] or ()
        made = Worker(app, app_name=target or "worker", **options)
    except (Invalid, ValueError) as error:
        raise BadConfiguration(str(error)) from error
    run_worker(made, log_format, log_level, read_token=read_again, explain=explain)


def _import_app(target: str | None) -> Any:
    """Return the application; exit with 2 and the reason if it cannot be imported."""
    if target is None:
        return None
    from schedo.worker.process.child import TargetError, load_target

    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return load_target(target)
    except TargetError as error:
        raise BadConfiguration(str(error)) from error
    except BaseException as error:  # an import may also call sys.exit
        traceback.print_exc()
        reason = f"{type(error).__name__}: {error}"
        raise BadConfiguration(f"cannot import {target!r}: {reason}") from error
