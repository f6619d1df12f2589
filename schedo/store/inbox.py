"""The interface of an inbox: what SQL clients submit in their own transactions.

Only a store in PostgreSQL has one; see store/postgres/inbox.py and docs/sql.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol


class InboxRow(NamedTuple):
    """A submitted job that no server has taken yet.

    spec: the body of POST /v1/jobs; of one above ENQUEUED_BYTES_MAX only the beginning, which is
    above it, too. is_own: this server takes it; otherwise the owner of its shard does.
    """

    id: int
    spec: str
    is_own: bool = True


def find_inbox(store: object) -> SqlInbox | None:
    """Return the inbox of a store that has one."""
    found: SqlInbox | None = getattr(store, "inbox", None)
    return found


class SqlInbox(Protocol):
    """The rows that wait; a commit with Changes.taken_in deletes them."""

    notify: Callable[[], None]  # called when a client has asked for attention; set by the reader

    async def read(self) -> Sequence[InboxRow]:
        """Return the next own rows that are durable; none if all have been returned.

        The caller has committed all rows of the call before, or has called `restart`. Raise
        StoreError.
        """

    async def find(self, job_id: int) -> InboxRow | None:
        """Return the row with this id, also one of another server, or None."""

    def restart(self) -> None:
        """Begin at the first row again, because returned rows may not have become jobs."""
