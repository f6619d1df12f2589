"""`python -m tests.e2e.cluster.rolling --upgrades 20`: restart all servers, and answer everyone.

A rolling upgrade stops one server after the other with SIGTERM and starts it again. The clients are
behind a load balancer that gives each new connection to the next server that accepts it. They send
requests in every way that HTTP allows, and each one must be answered without an error.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.cluster.servers import Cluster
from tests.e2e.takeover.traffic import TrafficProcesses
from tests.postgres import PostgresServer, running_server

CALM_S = 1.0  # before the first server stops, and after the last one has started


@dataclass
class Rolled:
    """How often all servers were restarted, and how the requests ended."""

    upgrades: int
    counts: Counter[str] = field(default_factory=Counter)
    left_s: list[float] = field(default_factory=list)  # from SIGTERM to the end of each process
    codes: list[int] = field(default_factory=list)

    @property
    def failed(self) -> dict[str, int]:
        """The requests that had no response or an error, by kind and reason."""
        return {what: count for what, count in self.counts.items() if what.startswith("failed")}

    @property
    def requests(self) -> int:
        return self.counts.total()


async def roll(
    directory: Path, postgres: PostgresServer, upgrades: int, rate: int = 100, servers: int = 3
) -> Rolled:
    """Restart every server so often, beside that many new connections a second."""
    rolled = Rolled(upgrades)
    cluster = Cluster(directory, postgres, servers)
    await cluster.start()
    try:
        traffic = TrafficProcesses(cluster.balancer_port, rate)
        await asyncio.sleep(CALM_S)
        for member in cluster.members * upgrades:
            member.respawned.clear()
            began = time.monotonic()
            member.signal(signal.SIGTERM)
            rolled.codes.append(await member.ended())
            rolled.left_s.append(time.monotonic() - began)
            await member.respawned.wait()
            await member.wait_ready()
        await asyncio.sleep(CALM_S)
        rolled.counts.update(await asyncio.to_thread(traffic.stop))
    finally:
        rolled.codes += await cluster.stop()
    return rolled


def main() -> int:
    """Run what the command line says; return 1 if a request failed."""
    parser = argparse.ArgumentParser(prog="tests.e2e.cluster.rolling", description=__doc__)
    parser.add_argument("--upgrades", type=int, default=3, help="how often each server restarts")
    parser.add_argument("--rate", type=int, default=100, help="new connections a second")
    parser.add_argument("--servers", type=int, default=3, help="how many servers")
    given = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="schedo-rolling-"))
    with running_server() as postgres:
        rolled = asyncio.run(roll(directory, postgres, given.upgrades, given.rate, given.servers))
    for what, count in sorted(rolled.counts.items()):
        print(f"  {count:8} {what}")
    slowest = sorted(rolled.left_s)
    print(f"{rolled.requests:,} requests beside {len(slowest)} restarts of a server")
    print(f"a process ended after {slowest[len(slowest) // 2]:.2f} s, at most {slowest[-1]:.2f} s")
    print(f"load average {os.getloadavg()[0]:.1f}")
    if rolled.failed or any(rolled.codes):
        print(f"failed: {sum(rolled.failed.values())}; exit codes {set(rolled.codes)}")
        print(f"the logs are in {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
