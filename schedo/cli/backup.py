"""`schedo backup`: copies the store of a running server, or of a stopped one, to one file."""

from __future__ import annotations

import os
from pathlib import Path

import click

from schedo.cli.connection import as_json, server_options
from schedo.cli.errors import on_files
from schedo.cli.escapes import escape
from schedo.cli.make_client import make_client
from schedo.cli.new_file import new_file
from schedo.cli.store_files import path_of
from schedo.cli.tables import print_json
from schedo.client.sync import Client


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--force", "is_forced", is_flag=True, help="Replace FILE if it exists.")
@click.option(
    "--store",
    metavar="STORE",
    help="Copy this file, whose server is stopped, instead of asking a running server.",
)
@as_json
@server_options
def backup(
    file: Path,
    is_forced: bool,
    store: str | None,
    is_json: bool,
    url: str,
    token_file: str | None,
) -> None:
    """Copy the store of a running server to FILE, on this machine.

    The copy has every job that was acknowledged before the instant that is printed, and the server
    continues meanwhile. FILE contains all payloads, so only you can read it. `schedo restore`
    puts it in place of a store, and `schedo check` checks it.
    """
    with new_file(file, is_replacing=is_forced) as temporary:
        if store is None:
            instant = _download(temporary, url, token_file)
        else:
            instant = _copy(store, temporary)
        size = temporary.stat().st_size
    if is_json:
        print_json({"file": str(file), "instant": instant, "size_bytes": size})
        return
    click.echo(f"{escape(str(file))}: {size:,} bytes, the store as it was at {instant}")


def _download(target: Path, url: str, token_file: str | None) -> str:
    with make_client(Client, url, token_file) as client:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            return client.backup(file)


def _copy(store: str, target: Path) -> str:
    from schedo.clock import SystemClock
    from schedo.protocol.times import render_instant
    from schedo.store.sqlite.backup import back_up_stopped

    with on_files():
        return render_instant(back_up_stopped(path_of(store), str(target), SystemClock().now))
