"""One run: a cluster under load while nemeses harm it, and then the checker."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from tests.e2e.cluster.limited import LIMITS, LimitedClients
from tests.e2e.cluster.limits import find_most_at_once
from tests.e2e.cluster.nemeses import NEMESES, OUTAGES, SKEWS_US, Nemeses
from tests.e2e.cluster.owners import Owners
from tests.e2e.cluster.servers import Cluster
from tests.e2e.cluster.submitters import InvokingClient, SqlClient
from tests.e2e.takeover.checker import Findings, check, find_lateness
from tests.e2e.takeover.clients import Clients, Load
from tests.e2e.takeover.evidence import ClientLog, Line, read_lines
from tests.e2e.takeover.run import wait_idle
from tests.postgres import PostgresServer

EARLY_S = 0.02  # the resolution of the times in the lines of commands


@dataclass(frozen=True)
class Plan:
    """How many servers, which nemeses in turn and how often, for at most how long.

    count: of nemeses in all. pause_s: the longest pause between two. earlier: the root of a
    checkout of an earlier version; every other server is of that one.
    """

    servers: int = 3
    nemeses: tuple[str, ...] = tuple(NEMESES)
    count: int = 10
    seed: int = 0
    pause_s: float = 1.0
    limit_s: float = 3_600.0
    earlier: Path | None = None
    load: Load = field(default_factory=Load)


@dataclass
class Outcome:
    """What a run showed."""

    plan: Plan
    findings: Findings
    log: ClientLog
    elapsed_s: float = 0.0


async def run(directory: Path, postgres: PostgresServer, plan: Plan) -> Outcome:
    """Carry out the plan, let everything end, and check it."""
    began = time.monotonic()
    cluster = Cluster(directory, postgres, plan.servers, plan.earlier)
    await cluster.start()
    clients = Clients(cluster.ports, cluster.runs, plan.seed, plan.load)
    limited = LimitedClients(cluster.ports, clients.log, plan.seed)
    sql = SqlClient(postgres, clients.log, plan.seed)
    invoking = InvokingClient(cluster.ports, clients.log, plan.seed)
    owners = Owners(postgres)
    try:
        await clients.start()
        await limited.start()
        submitting = [asyncio.create_task(each.run()) for each in (sql, invoking)]
        owners.start()
        await _harm(cluster, plan)
        until = time.time() - 1
        owners.stop()
        await limited.stop()
        sql.is_stopping = invoking.is_stopping = True
        await asyncio.gather(*submitting)
        await clients.stop()
        await wait_idle(cluster.ports, clients.log)
    finally:
        owners.stop()
        codes = await cluster.stop()
    findings = _check(cluster, clients.log, until, _off_s(plan))
    owners.check(findings, [kill for kill in cluster.kills if kill.what in OUTAGES])
    if any(codes):
        findings.fault("exit code", str(codes))
    return Outcome(plan, findings, clients.log, time.monotonic() - began)


async def _harm(cluster: Cluster, plan: Plan) -> None:
    nemeses, chosen = Nemeses(cluster, plan.seed), random.Random(plan.seed)
    deadline = time.monotonic() + plan.limit_s
    names = list(plan.nemeses)
    for number in range(plan.count):
        if time.monotonic() > deadline:
            break
        if number % len(names) == 0:
            chosen.shuffle(names)
        await asyncio.sleep(chosen.uniform(0, plan.pause_s))
        await nemeses.carry_out(names[number % len(names)])
    await asyncio.sleep(plan.pause_s)


def _off_s(plan: Plan) -> float:
    """Return how far a clock that a server follows can have been off.

    A server of an earlier version may follow that of its machine.
    """
    is_off = plan.earlier is not None and "skew" in plan.nemeses
    return max(map(abs, SKEWS_US)) / 1e6 if is_off else 0.0


def _check_early(findings: Findings, lines: list[Line], to_wall_s: float, off_s: float) -> None:
    """Nothing starts before it is due. off_s: how far a clock that a server follows was off."""
    allowed_s = EARLY_S + off_s
    for line in lines:
        early_s = datetime.fromisoformat(line.due).timestamp() - line.at - to_wall_s
        if line.what == "start" and early_s > allowed_s:
            findings.fault("early", f"{line} started {early_s:.3f} s before it was due")


def _check(cluster: Cluster, log: ClientLog, until: float, off_s: float) -> Findings:
    lines = read_lines(cluster.runs)
    findings = check(log, lines, cluster.rows(), until, recorded=cluster.recorded())
    to_wall_s = time.time() - time.monotonic()
    findings.lateness_s = find_lateness(lines, to_wall_s)
    _check_early(findings, lines, to_wall_s, off_s)
    findings.counts.update(f"nemesis {kill.what}" for kill in cluster.kills)
    findings.counts.update(f"ended by itself with {code}" for code in cluster.codes)
    findings.counts["tracebacks"] = cluster.log().count("Traceback")
    for kind in ("sql", "invoke"):
        made = [each for each in log.submissions if each.token.startswith(f"{kind}-")]
        findings.counts[f"{kind}: acknowledged"] = sum(each.job is not None for each in made)
        findings.counts[f"{kind}: taken back or refused"] = sum(each.is_rejected for each in made)
    for queue, limit in LIMITS.items():
        most, count = find_most_at_once(lines, f"{queue}-")
        findings.counts[f"runs of the queue with the limit {limit}"] = count
        if most > limit:
            findings.fault("limit", f"{most} ran at once in {queue}, whose limit is {limit}")
    return findings
