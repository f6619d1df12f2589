"""The stop of a server whose database does not respond: it ends without a confirmation.

A network that drops all packets, or a database that is stopped, ends no session. So the last
commits of the server would wait as long as that lasts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from schedo.errors import StoreError
from schedo.store.base import Store
from schedo.store.cluster import ShardOwner

SILENT_S = 5.0  # of the database, after which a server that stops waits no longer
_LOOK_S = 0.1


@contextmanager
def bounding_silence(
    store: Store, cluster: ShardOwner | None, on_fatal: Callable[[Exception], None]
) -> Iterator[None]:
    """Close the store during the block when its database has been silent, and report that.

    Then all calls of the store fail. A database that is only slow is waited for.
    """
    if cluster is None:  # the store is a file
        yield
        return
    watch = asyncio.create_task(_watch(store, cluster, on_fatal), name="schedo silent stop")
    try:
        yield
    finally:
        watch.cancel()


async def _watch(store: Store, cluster: ShardOwner, on_fatal: Callable[[Exception], None]) -> None:
    silent_s = 0.0
    while silent_s < SILENT_S:
        await asyncio.sleep(_LOOK_S)
        silent_s = silent_s + _LOOK_S if cluster.is_silent() else 0.0
    on_fatal(
        StoreError(
            f"the database has not responded for {SILENT_S:g} s while this server stops: its last"
            " changes are not confirmed, and the other servers take over its jobs"
        )
    )
    await store.close()
