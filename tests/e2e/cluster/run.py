"""One run: a cluster under load while nemeses harm it, and then the checker."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.cluster.limited import LIMITS, LimitedClients
from tests.e2e.cluster.limits import find_most_at_once
from tests.e2e.cluster.nemeses import NEMESES, OUTAGES, Nemeses
from tests.e2e.cluster.owners import Owners
from tests.e2e.cluster.servers import Cluster
from tests.e2e.takeover.checker import Findings, check, find_lateness
from tests.e2e.takeover.clients import Clients, Load
from tests.e2e.takeover.evidence import ClientLog, read_lines
from tests.e2e.takeover.run import wait_idle
from tests.postgres import PostgresServer


@dataclass(frozen=True)
class Plan:
    """How many servers, which nemeses in turn and how often, for at most how long.

    count: of nemeses in all. pause_s: the longest pause between two.
    """

    servers: int = 3
    nemeses: tuple[str, ...] = tuple(NEMESES)
    count: int = 10
    seed: int = 0
    pause_s: float = 1.0
    limit_s: float = 3_600.0
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
    cluster = Cluster(directory, postgres, plan.servers)
    await cluster.start()
    clients = Clients(cluster.ports, cluster.runs, plan.seed, plan.load)
    limited = LimitedClients(cluster.ports, clients.log, plan.seed)
    owners = Owners(postgres)
    try:
        await clients.start()
        await limited.start()
        owners.start()
        await _harm(cluster, plan)
        until = time.time() - 1
        owners.stop()
        await limited.stop()
        await clients.stop()
        await wait_idle(cluster.ports, clients.log)
    finally:
        owners.stop()
        codes = await cluster.stop()
    findings = _check(cluster, clients.log, until)
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


def _check(cluster: Cluster, log: ClientLog, until: float) -> Findings:
    lines = read_lines(cluster.runs)
    # A worker that reconnects to a server without its jobs loses them: docs/cluster.md.
    findings = check(log, lines, cluster.rows(), until, keeps_remote=False)
    findings.lateness_s = find_lateness(lines, time.time() - time.monotonic())
    findings.counts.update(f"nemesis {kill.what}" for kill in cluster.kills)
    findings.counts.update(f"ended by itself with {code}" for code in cluster.codes)
    findings.counts["tracebacks"] = cluster.log().count("Traceback")
    for queue, limit in LIMITS.items():
        most, count = find_most_at_once(lines, f"{queue}-")
        findings.counts[f"runs of the queue with the limit {limit}"] = count
        if most > limit:
            findings.fault("limit", f"{most} ran at once in {queue}, whose limit is {limit}")
    return findings
