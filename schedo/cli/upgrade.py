"""`schedo upgrade`: replaces a running server by a new process, without an error for a client."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import click
import msgspec

from schedo.cli.connection import as_json
from schedo.cli.errors import Failure
from schedo.cli.escapes import escape
from schedo.cli.serve import config_file, load
from schedo.cli.store_files import path_of
from schedo.cli.tables import print_json
from schedo.cli.value_types import DURATION
from schedo.core.limits import HOUR, SECOND
from schedo.errors import Unavailable
from schedo.protocol.times import parse_duration

if TYPE_CHECKING:
    from schedo.handover.messages import Activated

_PASSING_S = 10.0  # beyond the timeout: for the store to pass, or to be taken back


class _NotReplaced(Failure):
    """The new process failed; the reason may have the lines of a traceback."""

    def __init__(self, reason: str) -> None:
        end = "\n" if "\n" in reason else "; "
        super().__init__(
            f"{reason}{end}nothing has changed, and the process before was not replaced"
        )

    def show(self, file: Any = None) -> None:
        click.echo(f"schedo: {escape(self.message, keep=chr(10))}", file=file, err=True)


def _read_timeout(context: click.Context, option: click.Parameter, text: str) -> float:
    timeout_us = parse_duration(text)
    if not SECOND <= timeout_us <= HOUR:
        raise click.BadParameter("a new process may take 1 s to 1 h")
    return timeout_us / SECOND


@click.command()
@click.option("--store", metavar="FILE", help="The store, instead of the configuration's.")
@click.option(
    "--timeout",
    "timeout_s",
    default="10s",
    show_default=True,
    callback=_read_timeout,
    type=DURATION,
    help="How long the new process may take to be ready.",
)
@config_file
@as_json
def upgrade(store: str | None, timeout_s: float, path: str | None, is_json: bool) -> None:
    """Replace the running server by a new process, with the code that is on the disk now.

    The new process starts with the same command line and environment beside the old one, imports
    the code, reads the settings, and takes the place of the old one: no request fails meanwhile,
    and running jobs end in the old process. If the new process fails, the old one serves on, and
    the exit code is 1. SIGUSR2 does the same, and logs the result. To reload only the settings,
    use SIGHUP.
    """
    from schedo.handover.messages import UpgradeFailed

    try:
        activated = _run(load(path, {"store": store}).store, timeout_s)
    except UpgradeFailed as error:
        if is_json:
            raise
        raise _NotReplaced(str(error)) from error
    if is_json:
        print_json(msgspec.to_builtins(activated))
        return
    click.echo(
        f"process {activated.pid} serves now, with schedo {activated.version};"
        f" no server accepted requests for {activated.took_ms:.0f} ms"
    )


def _run(store: str, timeout_s: float) -> Activated:
    from schedo.handover.client import request_upgrade
    from schedo.handover.link import LinkLost
    from schedo.handover.socket_file import SUFFIX

    path = os.path.realpath(path_of(store))
    try:
        return asyncio.run(request_upgrade(path + SUFFIX, timeout_s, _PASSING_S))
    except LinkLost as error:
        raise Unavailable(str(error)) from error
