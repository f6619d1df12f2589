"""One run: servers, clients, workers and observers; kills at uniform instants; then the checker."""

from __future__ import annotations

import asyncio
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.takeover.checker import Findings, check, find_first_fires, find_lateness
from tests.e2e.takeover.clients import Clients
from tests.e2e.takeover.evidence import ClientLog, read_lines, read_store
from tests.e2e.takeover.observers import Observers
from tests.e2e.takeover.processes import Servers, start_worker
from tests.e2e.takeover.raw_http import Broken, Client
from tests.e2e.takeover.traffic import TrafficProcess
from tests.e2e.takeover.upgraded import UpgradedServer

IDLE_S = 60.0
WARM_PART = 0.9  # of the kills wait for a warm standby; the others for one that has connected


@dataclass(frozen=True)
class Plan:
    """What a run does: kills, or upgrades.

    pause_s: the longest pause between two of them. quiet_s: the time without them at the end.
    pace_s: see Clients. rate: of new connections, in a second, if there are no kills.
    """

    kills: int = 0
    upgrades: int = 0
    seed: int = 0
    standby: bool = False
    failpoints: bool = False
    pause_s: float = 1.0
    quiet_s: float = 0.0
    pace_s: float = 0.05
    rate: int = 500


@dataclass
class Outcome:
    """What a run showed."""

    plan: Plan
    findings: Findings
    log: ClientLog
    traffic: dict[str, int]
    upgrades: list[str]
    rss_mb: float
    elapsed_s: float


async def run(directory: Path, plan: Plan) -> Outcome:
    """Kill or upgrade the servers as planned, then let everything end, and check it."""
    began = time.monotonic()
    servers = _make_servers(directory, plan)
    await servers.start()
    observers = Observers(servers)
    worker = start_worker(directory, servers.port, servers.runs)
    clients = Clients(servers.port, servers.runs, plan.seed, plan.pace_s)
    traffic = TrafficProcess(servers.port, plan.rate) if not plan.kills else None
    counts: dict[str, int] = {}
    rss_mb = 0.0
    try:
        await clients.start(long=not plan.kills)
        await _carry_out(servers, plan)
        until = time.time() - 1
        await clients.stop()
        if traffic is not None:
            counts = await asyncio.to_thread(traffic.stop)
        await _wait_idle(servers.port, clients.log)
        rss_mb = _read_rss_mb(servers.active_pid or os.getpid())
    finally:
        observers.stop()
        codes = await servers.stop()
        worker.terminate()
        worker.wait()
    findings = _check(plan, clients.log, servers, until)
    observers.check(findings)
    _check_ends(findings, codes, counts)
    elapsed_s = time.monotonic() - began
    made = [upgrade.output.strip() for upgrade in getattr(servers, "upgrades", [])]
    return Outcome(plan, findings, clients.log, counts, made, rss_mb, elapsed_s)


def _make_servers(directory: Path, plan: Plan) -> Servers:
    if not plan.kills:
        return UpgradedServer(directory)
    failpoints = random.Random(plan.seed) if plan.failpoints else None
    return Servers(directory, standby=plan.standby, failpoints=failpoints)


def _check(plan: Plan, log: ClientLog, servers: Servers, until: float) -> Findings:
    rows, integrity = read_store(servers.store)
    lines = read_lines(servers.runs)
    findings = check(log, lines, rows, until, may_repeat=plan.kills > 0)
    findings.first_fires_s = find_first_fires(servers.kills, lines)
    findings.lateness_s = find_lateness(lines, time.time() - time.monotonic())
    findings.counts.update(f"kill, {kill.what}" for kill in servers.kills)
    findings.counts["tracebacks"] = servers.log().count("Traceback")
    if not plan.kills and (log.broken or log.unfinished or log.server_errors):
        findings.fault("request", f"{log.broken} broken, {log.unfinished}, {log.server_errors}")
    if integrity != "ok":
        findings.fault("integrity_check", integrity)
    if log.refused and not plan.failpoints:  # they may kill all that have the listener
        findings.fault("refused", f"{log.refused} connects")
    return findings


def _check_ends(findings: Findings, codes: list[int], traffic: dict[str, int]) -> None:
    """All servers end in order, and all requests are answered."""
    if any(codes):
        findings.fault("exit code", str(codes))
    for what, count in traffic.items():
        if what.startswith("failed"):
            findings.fault("request", f"{count} {what}")


async def _carry_out(servers: Servers, plan: Plan) -> None:
    pauses = random.Random(plan.seed)
    for number in range(plan.kills):
        await servers.wait_standby(warm=pauses.random() < WARM_PART)
        await asyncio.sleep(pauses.uniform(0, plan.pause_s))
        await servers.kill("standby" if plan.standby and number % 2 else "active")
    for _ in range(plan.upgrades):
        await asyncio.sleep(pauses.uniform(0, plan.pause_s))
        assert isinstance(servers, UpgradedServer), "the plan has no kills"
        upgrade = await servers.upgrade()
        if upgrade.code:
            raise RuntimeError(f"{upgrade}; the log: {servers.log()[-4000:]}")
    await asyncio.sleep(plan.quiet_s)


async def _wait_idle(port: int, log: ClientLog) -> None:
    """Return once no job waits or runs except those that schedules make each second."""
    client = Client(port, log)
    deadline = time.monotonic() + IDLE_S
    states = ("scheduled", "queued", "running", "retrying", "blocked")
    while time.monotonic() < deadline:
        left = 0
        for state in states:
            try:
                reply = await client.ask("GET", f"/v1/jobs?state={state}&limit=100")
            except Broken:
                left += 1
                continue
            left += sum("schedule" not in job for job in reply.body["items"])
        if not left:
            break
        await asyncio.sleep(0.1)
    client.close()


def _read_rss_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024
