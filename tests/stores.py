"""The store of the tests of the engine and of the web, and of some with whole servers.

It is in SQLite, or in PostgreSQL.

`make check-postgres` runs them with `SCHEDO_TEST_STORE=postgres`.
"""

from __future__ import annotations

import atexit
import os
from contextlib import ExitStack
from functools import cache
from hashlib import sha256
from itertools import count
from pathlib import Path

import pytest

from schedo.core.limits import SECOND
from schedo.store.base import Store
from schedo.store.sqlite.store import SqliteStore
from tests.postgres import VARIABLE, running_server

IN_POSTGRES = os.environ.get("SCHEDO_TEST_STORE") == "postgres"
# For tests that copy or sign the files of a store, or replace a part of the one in SQLite.
needs_sqlite = pytest.mark.skipif(IN_POSTGRES, reason="it is about a store in a file")
_numbers = count(1)
# No other server takes part, so a machine that is busy for a moment must not put one in doubt.
_TIMEOUT_US = 30 * SECOND


def make_store(path: Path | str = ":memory:") -> Store:
    """Return the store at the path, not yet opened; the same one for the same path."""
    if not IN_POSTGRES:
        return SqliteStore(path)
    from schedo.store.postgres.store import PostgresStore

    name = f"{os.getpid()} {next(_numbers)}" if path == ":memory:" else str(path)
    return PostgresStore(make_url(name), _TIMEOUT_US)


def make_url(name: str) -> str:
    """Return the URL of a store in PostgreSQL; the same one for the same name."""
    url = _database()
    separator = "&" if "?" in url else "?"
    return f"{url}{separator}schema=t{sha256(name.encode()).hexdigest()[:30]}"


def serve_options(directory: Path) -> list[str]:
    """Return the options for `schedo serve` with the store of this directory."""
    if not IN_POSTGRES:
        return []
    return ["--store", make_url(str(directory)), "--failover-timeout", f"{_TIMEOUT_US // SECOND}s"]


@cache
def _database() -> str:
    given = os.environ.get(VARIABLE)
    if given:
        return given
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(running_server()).url()
