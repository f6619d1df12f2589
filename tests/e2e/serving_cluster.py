"""Servers on one database, which share its shards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from schedo.core.shards import SHARDS
from tests.e2e.server import Server, eventually, serving

SERVERS = 3


@contextmanager
def serving_cluster(directory: Path, url: str, *options: str) -> Iterator[list[Server]]:
    """Run servers with these options during the block, from when each has its share."""
    # On a busy machine no server is taken for dead, and the end of a process is noticed anyway.
    together = ("--store", url, "--failover-timeout", "5s", *options)
    with ExitStack() as stack:
        found = [stack.enter_context(serving(directory, *together)) for _ in range(SERVERS)]

        def shares() -> bool:
            members = found[0].ask("GET", "/v1/cluster")[1]["members"]
            each = SHARDS // SERVERS
            return len(members) == SERVERS and all(len(m["shards"]) >= each for m in members)

        eventually(shares, "shards for all")
        yield found
