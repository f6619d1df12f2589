"""`python -m tests.e2e.takeover --kills 1000`: kill servers under load, and check every promise."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests.e2e.takeover.checker import percentile
from tests.e2e.takeover.run import Outcome, Plan, run


def main() -> int:
    """Run what the command line says; return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="tests.e2e.takeover", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="how many processes are killed")
    parser.add_argument("--upgrades", type=int, default=0, help="how many upgrades, without kills")
    parser.add_argument("--quiet", type=float, default=0.0, help="s without either, at the end")
    parser.add_argument(
        "--rate", type=int, default=500, help="new connections a second beside them"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the instants and of the clients")
    parser.add_argument("--restart", action="store_true", help="no standby: a supervisor restarts")
    parser.add_argument("--failpoints", action="store_true", help="die at points of the code, too")
    parser.add_argument("--pause", type=float, default=1.0, help="longest pause between kills, s")
    parser.add_argument("--pace", type=float, default=0.05, help="mean pause of each client, s")
    parser.add_argument("--keep", action="store_true", help="keep the files of the run")
    given = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="schedo-takeover-"))
    plan = Plan(
        kills=0 if given.upgrades else given.kills,
        upgrades=given.upgrades,
        seed=given.seed,
        standby=not given.restart,
        failpoints=given.failpoints,
        pause_s=given.pause,
        quiet_s=given.quiet,
        pace_s=given.pace,
        rate=given.rate,
    )
    outcome = asyncio.run(run(directory, plan))
    print(describe(outcome))
    if given.keep or outcome.findings.violations:
        print(f"its files are in {directory}")
    else:
        shutil.rmtree(directory)
    return 1 if outcome.findings.violations else 0


def describe(outcome: Outcome) -> str:
    """Return the figures of a run, each with its n, and the violations."""
    findings, log = outcome.findings, outcome.log
    lines = [f"{outcome.plan}, {outcome.elapsed_s:.0f} s"]
    lines += [f"  {count:8} {what}" for what, count in sorted(findings.counts.items()) if count]
    lines.append(
        f"  {log.requests:8} requests: {log.refused} refused, {log.broken} broken,"
        f" {log.unfinished} unfinished, errors {log.server_errors}"
    )
    lines += [f"  {count:8} {what}" for what, count in sorted(outcome.traffic.items())]
    lines += [f"  {text}" for text in outcome.upgrades]
    lines += describe_times("kill to first fire", findings.first_fires_s)
    lines += describe_times("lateness of timers", findings.lateness_s)
    lines.append(
        f"  RSS of the active {outcome.rss_mb:.0f} MB, load average {os.getloadavg()[0]:.1f}"
    )
    lines += [f"  VIOLATION {text}" for text in findings.violations]
    return "\n".join(lines if findings.violations else [*lines, "  no violation"])


def describe_times(what: str, times_s: list[float]) -> list[str]:
    """Return a line with the distribution, if there is one."""
    if not times_s:
        return []
    p50, p99 = (percentile(times_s, part) * 1000 for part in (0.5, 0.99))
    worst, count = max(times_s) * 1000, len(times_s)
    return [f"  {what}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, worst {worst:.1f} ms, n {count}"]


if __name__ == "__main__":
    sys.exit(main())
