"""The stores of jobs: a SQLite file, or the memory of the process."""

from __future__ import annotations

from schedo.errors import Invalid
from schedo.store.base import Store

_SQLITE = "sqlite://"


def open_store(url: str, *, accept_loss: bool = False) -> Store:
    """Return the store that the URL names, not yet opened.

    url: a path, "sqlite:///path" or ":memory:". accept_loss: if some of the store's files are
    missing, open it with what is left.
    """
    # Only the store that is used is imported.
    if url in (":memory:", "memory:"):
        from schedo.store.memory import MemoryStore

        return MemoryStore()
    scheme, separator, _ = url.partition("://")
    if separator and scheme != "sqlite":
        raise Invalid.field(
            "/store", f"{scheme}:// is not supported yet; give the path of a SQLite file"
        )
    path = url.removeprefix(_SQLITE)
    if not path.strip("/") or path.endswith("/") or "\0" in path:
        raise Invalid.field("/store", f"{url!r} does not name a file")
    from schedo.store.sqlite.store import SqliteStore

    return SqliteStore(path, accept_loss=accept_loss)
