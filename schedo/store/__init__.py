"""The stores of jobs: SQLite, in a file or in memory; PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schedo.core.limits import FAILOVER_TIMEOUT_US
from schedo.errors import Invalid, StoreUnsuitable
from schedo.program import how_to_install

if TYPE_CHECKING:
    from schedo.store.base import Store
    from schedo.store.postgres.store import PostgresStore

_FILE_SCHEMES = ("sqlite", "file")
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


def read_path(store: str) -> str:
    """Return the path of a store in a file, or ":memory:"; raise Invalid if it is neither."""
    scheme, separator, rest = store.partition("://")
    rest = rest.lstrip("/")
    if separator and scheme.startswith(_FILE_SCHEMES) and rest:
        raise Invalid.field(
            "/store",
            f"{store!r} is a URL, and programs disagree on whether its path begins at the root;"
            f" give the path alone: /{rest} or {rest}",
        )
    if separator and not scheme.startswith(_FILE_SCHEMES):
        raise Invalid.field(
            "/store",
            f"{scheme}:// is not supported; give the path of a SQLite file, or postgresql://…",
        )
    # A mistyped URL is no path. The error does not show it, because it may have a password.
    if not separator and store.partition(":")[0] in {*_POSTGRES, *_FILE_SCHEMES}:
        raise Invalid.field(
            "/store", "give the path of a SQLite file, or a URL with two slashes: postgresql://…"
        )
    if not store.strip("/") or store.endswith("/") or "\0" in store:
        raise Invalid.field("/store", f"{store!r} does not name a file")
    return ":memory:" if store == "memory:" else store


def open_store(
    url: str,
    *,
    accept_loss: bool = False,
    failover_timeout_us: int = FAILOVER_TIMEOUT_US,
    read_url: str | None = None,
) -> Store:
    """Return the store that the URL names, not yet opened.

    url: a path, ":memory:" or "postgresql://user@host/database". accept_loss: if some of the files
    of a SQLite store are missing, open it with what is left.
    failover_timeout_us: how long this server may be silent before other servers that share the
    store in PostgreSQL take its jobs over. read_url: a standby that answers lists and searches.
    """
    # Only the store that is used is imported.
    if is_postgres(url):
        return open_postgres(url, failover_timeout_us, read_url)
    path = read_path(url)
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
