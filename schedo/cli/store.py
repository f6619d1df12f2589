"""`schedo store`: prepares the tables of a store in PostgreSQL, and copies stores."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from typing import Any, TypeVar

import click

from schedo.cli.connection import as_json
from schedo.cli.errors import BadConfiguration, Failure, on_files
from schedo.cli.escapes import escape
from schedo.cli.serve import config_file, load
from schedo.cli.store_files import path_of
from schedo.cli.tables import print_json, print_table
from schedo.store import is_postgres, open_postgres, without_password
from schedo.store.copying import Copied, Source, Target, copy_store
from schedo.store.sqlite.copying import sqlite_source, sqlite_target

T = TypeVar("T")


@click.group()
def store() -> None:
    """Prepare a store in PostgreSQL, or copy a store to it or from it."""


@store.command()
@click.option("--store", metavar="STORE", help="The store.  [default: that of the configuration]")
@config_file
@as_json
def migrate(store: str | None, path: str | None, is_json: bool) -> None:
    """Bring a store in PostgreSQL to the version of this schedo.

    A server does it when it starts. With this command, the user of the server needs no right to
    change tables: run it as another one before the start. A server of the version before may go on
    meanwhile, unless the command says that it may not open the schema afterwards.
    """
    url = load(path, {"store": store}).store
    if not is_postgres(url):
        raise BadConfiguration(
            f"{url} is not in PostgreSQL; a server changes its own file when it starts"
        )
    with on_files():
        done = _run(open_postgres(url).migrate())
    shown = without_password(url)
    if is_json:
        print_json({"store": shown, "before": done.before, "schema": done.after})
    elif done.before == done.after:
        click.echo(f"{escape(shown)} has schema {done.after} already")
    else:
        click.echo(f"{escape(shown)} has schema {done.after} now, before {done.before or 'none'}")


@store.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@as_json
def copy(source: str, target: str, is_json: bool) -> None:
    """Copy a store from a file to PostgreSQL, or back.

    One of FROM and TO is the path of a file, the other one the URL of a store in PostgreSQL. The
    servers of both are stopped, and TO is empty. Everything is copied as it is: jobs with their ids
    and attempts, outputs, schedules with their runs, queues, the log. Then both stores are read and
    compared, and TO becomes a store only if all hashes are equal; otherwise, or if the command is
    interrupted, it stays empty. Afterwards start a server on one of the two stores only.
    """
    if is_postgres(source) == is_postgres(target):
        raise click.UsageError(
            "one of FROM and TO is a file, and the other one a URL: postgresql://…; for two files"
            " use `schedo backup` and `schedo restore`, for two databases pg_dump"
        )
    with on_files(), _progress() as note:
        done = _run(copy_store(_open_source(source), _open_target(target), note))
    if is_json:
        print_json([{**each._asdict(), "is_equal": each.is_equal} for each in done])
    else:
        print_table(
            ("TABLE", "ROWS", "SHA-256", "EQUAL"),
            [(each.table, f"{each.rows:,}", each.digest, _compare(each)) for each in done],
        )
    unequal = [each.table for each in done if not each.is_equal]
    if unequal:
        raise Failure(
            f"the copy differs from its source in {', '.join(unequal)}; nothing was kept in"
            f" {without_password(target)}"
        )


def _run(main: Coroutine[Any, Any, T]) -> T:
    """Run it as asyncio.run does, but at an interrupt do not wait for a name that is looked up.

    A thread does that, for as long as the servers of the names are silent.
    """
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())
        try:
            return runner.run(main)
        except KeyboardInterrupt:
            stack.pop_all()  # the process ends now; the end of the runner would wait for the thread
            raise


def _compare(copied: Copied) -> str:
    if copied.is_equal:
        return "yes"
    return f"NO: {copied.target_rows:,} rows, {copied.target_digest}"


def _open_source(store: str) -> AbstractAsyncContextManager[Source]:
    if is_postgres(store):
        open_postgres(store)  # it says what to install if the driver is missing
        from schedo.store.postgres.copying import postgres_source

        return postgres_source(store)
    return sqlite_source(path_of(store))


def _open_target(store: str) -> AbstractAsyncContextManager[Target]:
    if is_postgres(store):
        open_postgres(store)
        from schedo.store.postgres.copying import postgres_target

        return postgres_target(store)
    return sqlite_target(path_of(store))


@contextmanager
def _progress() -> Iterator[Callable[[str, int], None]]:
    """Yield a function that shows on a terminal how many rows of a table are copied."""
    is_shown = sys.stderr.isatty()

    def note(table: str, rows: int) -> None:
        if is_shown:
            click.echo(f"\r\x1b[K{table}: {rows:,} rows", nl=False, err=True)

    try:
        yield note
    finally:
        if is_shown:
            click.echo("\r\x1b[K", nl=False, err=True)
