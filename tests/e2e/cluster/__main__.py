"""`python -m tests.e2e.cluster --count 100`: harm a cluster under load, and check every promise."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests.e2e.cluster.nemeses import NEMESES
from tests.e2e.cluster.run import Outcome, Plan, run
from tests.e2e.takeover.__main__ import describe_times
from tests.e2e.takeover.clients import Load
from tests.postgres import running_server


def main() -> int:
    """Run what the command line says; return 1 if a promise was broken."""
    given = _parse()
    plan = Plan(
        servers=given.servers,
        nemeses=tuple(given.nemeses or NEMESES),
        count=given.count,
        seed=given.seed,
        pause_s=given.pause,
        limit_s=given.limit,
        earlier=given.earlier,
        load=Load(pace_s=given.pace, firings=given.firings),
    )
    directory = Path(tempfile.mkdtemp(prefix="schedo-cluster-"))
    with running_server() as postgres:
        outcome = asyncio.run(run(directory, postgres, plan))
    print(describe(outcome), flush=True)
    findings = outcome.findings
    if given.keep or findings.violations or findings.counts["tracebacks"]:
        print(f"its files are in {directory}")
    else:
        shutil.rmtree(directory)
    return 1 if findings.violations else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.e2e.cluster", description=__doc__)
    add = parser.add_argument
    add("--servers", type=int, default=3, help="how many servers")
    add("--count", type=int, default=20, help="how many nemeses, in all")
    add("--nemeses", nargs="+", choices=sorted(NEMESES), help="which ones in turn; default: all")
    add("--limit", type=float, default=3_600.0, help="s after which nothing more happens")
    add("--seed", type=int, default=0, help="of the instants and of the clients")
    add("--pause", type=float, default=1.0, help="longest pause between nemeses, s")
    add("--pace", type=float, default=0.1, help="mean pause of each client, s")
    add("--firings", type=int, default=50, help="timers that are due in each second")
    add("--earlier", type=Path, help="root of a checkout for every other server")
    add("--keep", action="store_true", help="keep the files of the run")
    return parser.parse_args()


def describe(outcome: Outcome) -> str:
    """Return the figures of a run, each with its n, and the violations."""
    findings, log = outcome.findings, outcome.log
    lines = [f"{outcome.plan}, {outcome.elapsed_s:.0f} s"]
    lines += [f"  {count:8} {what}" for what, count in sorted(findings.counts.items()) if count]
    lines.append(
        f"  {log.requests:8} requests: {log.refused} refused, {log.broken} broken,"
        f" {log.unfinished} unfinished, errors {log.server_errors}"
    )
    lines += describe_times("lateness of timers", findings.lateness_s)
    lines.append(f"  load average {os.getloadavg()[0]:.1f}")
    lines += [f"  VIOLATION {text}" for text in findings.violations]
    return "\n".join(lines if findings.violations else [*lines, "  no violation"])


if __name__ == "__main__":
    sys.exit(main())
