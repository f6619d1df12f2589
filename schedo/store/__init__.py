"""The stores of jobs: SQLite, in a file or in memory; PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schedo.core.limits import FAILOVER_TIMEOUT_US
from schedo.errors import Invalid, StoreUnsuitable
from schedo.program import how_to_install

if TYPE_CHECKING:
    from schedo.store.base import Store
    from schedo.store.postgres.store import PostgresStore

_SQLITE = "sqlite://"
_POSTGRES = ("postgresql", "postgres")


def is_postgres(url: str) -> bool:
    """Return whether the URL names a store in PostgreSQL."""
    return url.partition("://")[0] in _POSTGRES and "://" in url


def without_password(url: str) -> str:
    """Return the URL of a store without its password, for logs and answers."""
    if not is_postgres(url):
        return url
    from schedo.store.postgres.address import parse_address

    try:
        return parse_address(url).shown
    except Invalid:  # then any part may be the password
        return f"{url.partition('://')[0]}://…"


def open_store(
    url: str,
    *,
    accept_loss: bool = False,
    failover_timeout_us: int = FAILOVER_TIMEOUT_US,
    read_url: str | None = None,
) -> Store:
    """Return the store that the URL names, not yet opened.

    url: a path, "sqlite:///path", ":memory:" or "postgresql://user@host/database". accept_loss: if
    some of the files of a SQLite store are missing, open it with what is left.
    failover_timeout_us: how long this server may be silent before other servers that share the
    store in PostgreSQL take its jobs over. read_url: a standby that answers lists and searches.
    """
    # Only the store that is used is imported.
    if is_postgres(url):
        return open_postgres(url, failover_timeout_us, read_url)
    scheme, separator, _ = url.partition("://")
    if separator and scheme != "sqlite":
        raise Invalid.field(
            "/store",
            f"{scheme}:// is not supported; give the path of a SQLite file, or postgresql://…",
        )
    # A mistyped URL is no path. The error does not show it, because it may have a password.
    if not separator and url.partition(":")[0] in {*_POSTGRES, "sqlite"}:
        raise Invalid.field(
            "/store", "a URL has two slashes after the colon: postgresql://…, sqlite:///…"
        )
    path = ":memory:" if url == "memory:" else url.removeprefix(_SQLITE)
    if not path.strip("/") or path.endswith("/") or "\0" in path:
        raise Invalid.field("/store", f"{url!r} does not name a file")
    from schedo.store.sqlite.store import SqliteStore

    return SqliteStore(path, accept_loss=accept_loss)


def open_postgres(
    url: str, failover_timeout_us: int = FAILOVER_TIMEOUT_US, read_url: str | None = None
) -> PostgresStore:
    """Return the store in PostgreSQL that the URL names, not yet opened; see open_store."""
    try:
        from schedo.store.postgres.store import PostgresStore
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise StoreUnsuitable(
            "a store in PostgreSQL needs the package asyncpg; install it with:"
            f" {how_to_install('postgres')}"
        ) from error
    return PostgresStore(url, failover_timeout_us, read_url)
