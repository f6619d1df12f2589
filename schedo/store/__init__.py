"""The stores of jobs: SQLite, in a file or in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schedo.errors import Invalid

if TYPE_CHECKING:
    from schedo.store.sqlite.store import SqliteStore

_SQLITE = "sqlite://"


def open_store(url: str, *, accept_loss: bool = False) -> SqliteStore:
    """Return the store that the URL names, not yet opened.

    url: a path, "sqlite:///path" or ":memory:". accept_loss: if some of the store's files are
    missing, open it with what is left.
    """
    scheme, separator, _ = url.partition("://")
    if separator and scheme != "sqlite":
        raise Invalid.field(
            "/store", f"{scheme}:// is not supported yet; give the path of a SQLite file"
        )
    path = ":memory:" if url == "memory:" else url.removeprefix(_SQLITE)
    if not path.strip("/") or path.endswith("/") or "\0" in path:
        raise Invalid.field("/store", f"{url!r} does not name a file")
    # Only the store that is used is imported.
    from schedo.store.sqlite.store import SqliteStore

    return SqliteStore(path, accept_loss=accept_loss)
