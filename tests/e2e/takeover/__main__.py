"""`python -m tests.e2e.takeover --kills 1000`: kill servers under load, and check every promise."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.e2e.takeover.checker import percentile
from tests.e2e.takeover.clients import Load
from tests.e2e.takeover.plan import Outcome, Plan
from tests.e2e.takeover.run import run

LATE_S = 0.05  # a timer may always be late by this
REST_PACE_S = 0.5


def main() -> int:
    """Run what the command line says; return 1 if a promise was broken."""
    given = _parse()
    plan = _make_plan(given)
    outcome = _run(plan, keep=given.keep)
    if given.compare:
        alone = replace(plan, upgrades=0, quiet_s=outcome.loaded_s)
        _compare(outcome, _run(alone, keep=given.keep))
    return 1 if outcome.findings.violations else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.e2e.takeover", description=__doc__)
    add = parser.add_argument
    add("--kills", type=int, default=20, help="how many processes are killed")
    add("--only-active", action="store_true", help="never kill the standby: twice the take-overs")
    add("--upgrades", type=int, default=0, help="how many upgrades, without kills")
    add("--compare", action="store_true", help="afterwards as long without upgrades: lateness")
    add("--steps", type=int, default=0, help="how often each process dies at each upgrade step")
    add("--stops", type=int, default=0, help="how often the active server is stopped by SIGSTOP")
    add("--kill-stuck", action="store_true", help="the standby kills a server that is stopped")
    add("--quiet", type=float, default=0.0, help="s without all that, at the end")
    add("--limit", type=float, default=3_600.0, help="s after which nothing more happens")
    add("--seed", type=int, default=0, help="of the instants and of the clients")
    add("--restart", action="store_true", help="no standby: a supervisor restarts")
    add("--failpoints", action="store_true", help="die at points of the code, too")
    add("--pause", type=float, default=1.0, help="longest pause between kills, s")
    add("--pace", type=float, default=0.05, help="mean pause of each client, s")
    add("--rest", action="store_true", help="few requests, and the limits of a machine at rest")
    add("--idle", action="store_true", help="only timers, schedules and event streams")
    add("--firings", type=int, default=100, help="timers that are due in each second")
    add("--submits", type=int, default=0, help="single submits a second, besides")
    add("--waiting", type=int, default=0, help="jobs in the file that are due tomorrow")
    add("--rate", type=int, default=500, help="new connections a second beside upgrades")
    add("--keep", action="store_true", help="keep the files of the run")
    return parser.parse_args()


def _make_plan(given: argparse.Namespace) -> Plan:
    without_kills = given.upgrades or given.steps or given.stops
    return Plan(
        kills=0 if without_kills else given.kills,
        only_active=given.only_active,
        upgrades=given.upgrades,
        steps=given.steps,
        stops=given.stops,
        is_killed_stuck=given.kill_stuck,
        seed=given.seed,
        standby=not given.restart,
        failpoints=given.failpoints,
        is_at_rest=given.rest,
        waiting=given.waiting,
        pause_s=given.pause,
        quiet_s=given.quiet,
        limit_s=given.limit,
        rate=given.rate,
        load=Load(
            pace_s=REST_PACE_S if given.rest else given.pace,
            firings=given.firings,
            submits=given.submits,
            is_idle=given.idle,
            is_long=bool(given.upgrades or given.compare),
        ),
    )


def _run(plan: Plan, *, keep: bool) -> Outcome:
    directory = Path(tempfile.mkdtemp(prefix="schedo-takeover-"))
    outcome = asyncio.run(run(directory, plan))
    print(describe(outcome), flush=True)
    findings = outcome.findings
    if keep or findings.violations or findings.counts["tracebacks"]:
        print(f"its files are in {directory}")
    else:
        shutil.rmtree(directory)
    return outcome


def _compare(outcome: Outcome, alone: Outcome) -> None:
    """No timer is later than without upgrades, or than LATE_S; else the run has a violation."""
    worst, worst_alone = (max(each.findings.lateness_s) for each in (outcome, alone))
    outcome.findings.violations += alone.findings.violations
    if worst > max(LATE_S, worst_alone):
        outcome.findings.fault("late", f"{worst * 1000:.1f} ms")
        print(f"  VIOLATION {outcome.findings.violations[-1]}")
    print(
        f"the latest timer was {worst * 1000:.1f} ms late with upgrades, and"
        f" {worst_alone * 1000:.1f} ms in {alone.loaded_s:.0f} s without"
    )


def describe(outcome: Outcome) -> str:
    """Return the figures of a run, each with its n, and the violations."""
    findings, log = outcome.findings, outcome.log
    plan = outcome.plan.describe()
    lines = [f"{plan}, {outcome.elapsed_s:.0f} s, {outcome.loaded_s:.0f} s under load"]
    lines += [f"  {count:8} {what}" for what, count in sorted(findings.counts.items()) if count]
    lines.append(
        f"  {log.requests:8} requests: {log.refused} refused, {log.broken} broken,"
        f" {log.unfinished} unfinished, errors {log.server_errors}"
    )
    lines += _describe_traffic(outcome)
    lines += [f"  {text}" for text in outcome.upgrades]
    lines += describe_times("lateness of timers", findings.lateness_s)
    for what, times_s in outcome.times_s.items():
        lines += describe_times(what, times_s)
    memory = ", ".join(f"{name} {size:.0f} MB" for name, size in outcome.rss_mb.items())
    lines.append(f"  RSS: {memory}; load average {os.getloadavg()[0]:.1f}")
    lines += [f"  VIOLATION {text}" for text in findings.violations]
    return "\n".join(lines if findings.violations else [*lines, "  no violation"])


def _describe_traffic(outcome: Outcome) -> list[str]:
    lines = []
    for what, count in sorted(outcome.traffic.items()):
        lines.append(f"  {count:8} {what}, {count / outcome.loaded_s:.0f}/s")
    if lines:
        answered = sum(n for what, n in outcome.traffic.items() if what.startswith("answered"))
        lines.append(f"  {answered + outcome.log.requests:8} requests in all")
    return lines


def describe_times(what: str, times_s: list[float]) -> list[str]:
    """Return a line with the distribution, if there is one."""
    if not times_s:
        return []
    p50, p99 = (percentile(times_s, part) * 1000 for part in (0.5, 0.99))
    worst, count = max(times_s) * 1000, len(times_s)
    return [f"  {what}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, worst {worst:.1f} ms, n {count}"]


if __name__ == "__main__":
    sys.exit(main())
