"""`schedo serve`: starts the server; it has one option for each setting in schedo/config.py."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any, TypeVar

import click

from schedo.cli.errors import BadConfiguration
from schedo.config import Config, load_config, option, variable
from schedo.config_checks import check_config
from schedo.errors import Invalid
from schedo.handover.command import Command
from schedo.hardening import harden_process
from schedo.program import executable_of_a_new_version
from schedo.setting_table import SETTINGS

F = TypeVar("F", bound=Callable[..., Any])
_MEMORY = ":memory:"
_MANY = ("allowed_hosts", "webhook_allow")


def setting_options(function: F) -> F:
    """Add an option for every setting except the app, which is an argument."""
    for key, setting in reversed(SETTINGS.items()):
        if key == "app":
            continue
        name, parameter = option(key), key.replace(".", "__")
        help_text = f"{setting.help} [{variable(key)}]"
        if setting.metavar == "BOOL":
            declaration = f"{name}/--no-{name.removeprefix('--')}"
            add = click.option(declaration, parameter, default=None, help=help_text)
        else:
            add = click.option(
                name,
                parameter,
                metavar=setting.metavar,
                multiple=key in _MANY,
                default=None,
                help=help_text,
            )
        function = add(function)
    return function


config_file = click.option(
    "--config",
    "path",
    envvar="SCHEDO_CONFIG",
    metavar="FILE",
    help="Configuration file to read instead of schedo.toml.",
)


def load(
    path: str | None, flags: dict[str, Any], environ: MutableMapping[str, str] = os.environ
) -> Config:
    """Return the configuration; exit with 2 and an error message if it is wrong."""
    try:
        return _load(path, flags, environ)
    except Invalid as error:
        raise BadConfiguration(str(error)) from error


def _load(path: str | None, flags: dict[str, Any], environ: MutableMapping[str, str]) -> Config:
    given = {key.replace("__", "."): value for key, value in flags.items()}
    return load_config(
        {key: value for key, value in given.items() if value != ()},
        environ,
        paths=None if path is None else [Path(path)],
        must_exist=path is not None,
    )


def _check_test_store(config: Config) -> str:
    """Return the store of a server with a test clock; refuse one that production may use."""
    if "store" in config.sources and config.store != _MEMORY:
        raise BadConfiguration(
            f"store = {config.store!r} ({config.sources['store']}): a server with --test-clock"
            " keeps its jobs in memory, because a moved clock would spoil a store; remove the"
            f" setting, or add --store {_MEMORY}"
        )
    return _MEMORY


@click.command()
@click.argument("app", required=False, metavar="[MODULE:NAME]")
@config_file
@setting_options
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Start although a part of the store is missing; the jobs in that part are lost. Use it by"
    " hand for one start, never in a service file.",
)
@click.option(
    "--resume",
    "is_resuming",
    is_flag=True,
    help="End the pauses of the server, for example after `schedo restore`.",
)
@click.option(
    "--prune",
    "is_pruning",
    is_flag=True,
    help="Delete the schedules that the app's code no longer declares.",
)
@click.option(
    "--test-clock",
    "has_test_clock",
    is_flag=True,
    help="For tests: the clock stands still until `schedo clock advance` moves it, and jobs are"
    " kept in memory only.",
)
@click.option(
    "--reload",
    "is_reloading",
    is_flag=True,
    help="For development: when a Python file in this directory changes, import the app again.",
)
def serve(
    path: str | None,
    accept_loss: bool,
    is_resuming: bool,
    is_pruning: bool,
    has_test_clock: bool,
    is_reloading: bool,
    **flags: Any,
) -> None:
    """Start the server. With MODULE:NAME, it runs the tasks of that app in child processes.

    Every option can also be set in schedo.toml, or by the environment variable in brackets. SIGHUP
    reads the settings again.
    """
    harden_process()
    executable = executable_of_a_new_version()
    command = Command.of_this_process(sys.orig_argv, executable, os.environ)
    token = os.environ.get("SCHEDO_TOKEN")  # the first load removes it
    if has_test_clock:
        flags["store"] = _check_test_store(load(path, flags, dict(os.environ)))
    config = load(path, flags)
    try:
        check_config(config)
    except Invalid as error:
        raise BadConfiguration(str(error)) from error
    if is_reloading and config.app is None:
        raise BadConfiguration("--reload needs an app: schedo serve MODULE:NAME --reload")
    if is_reloading and config.standby:
        raise BadConfiguration("--reload is for development; a standby has no use for it")
    from schedo.loops import end_process
    from schedo.serve import run_server
    from schedo.server.start import Start

    def read_again() -> Config:
        environ = dict(os.environ) if token is None else {**os.environ, "SCHEDO_TOKEN": token}
        return _load(path, flags, environ)

    start = Start(accept_loss, is_resuming, is_pruning, has_test_clock, is_reloading, command)
    end_process(run_server(config, start, read=read_again))
