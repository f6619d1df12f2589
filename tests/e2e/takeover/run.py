"""One run: servers, clients, workers and observers; kills at uniform instants; then the checker."""

from __future__ import annotations

import asyncio
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.takeover.checker import Findings, check, find_first_fires
from tests.e2e.takeover.clients import Clients
from tests.e2e.takeover.evidence import ClientLog, read_lines, read_store
from tests.e2e.takeover.observers import ChildObserver, LockObserver
from tests.e2e.takeover.processes import Servers, start_worker
from tests.e2e.takeover.raw_http import Broken, Client

IDLE_S = 60.0
LOOK_S = 0.2


@dataclass(frozen=True)
class Plan:
    """What a run does. pause_s: the longest pause between two kills; pace_s: see Clients."""

    kills: int
    seed: int
    standby: bool
    pause_s: float = 1.0
    pace_s: float = 0.05


@dataclass
class Outcome:
    """What a run showed."""

    plan: Plan
    findings: Findings
    log: ClientLog
    rss_mb: float
    load: float
    elapsed_s: float


async def run(directory: Path, plan: Plan) -> Outcome:
    """Kill the servers as planned, then let everything end, and check it."""
    began = time.monotonic()
    servers = Servers(directory, standby=plan.standby)
    await servers.start()
    lock = LockObserver(directory / "schedo.db.lock")
    worker = start_worker(directory, servers.port, servers.runs)
    children = ChildObserver(servers.store, servers.port)
    looking = asyncio.create_task(_look(children, servers))
    clients = Clients(servers.port, servers.runs, plan.seed, plan.pace_s)
    rss_mb = 0.0
    try:
        await clients.start()
        await _kill(servers, plan)
        until = time.time() - 1
        await clients.stop()
        await _wait_idle(servers.port, clients.log)
        rss_mb = _read_rss_mb(servers.active.pid) if servers.active else 0.0
    finally:
        looking.cancel()
        worker.terminate()
        worker.wait()
        tries, taken = lock.stop()
        codes = await servers.stop()
    findings = _check(clients.log, servers, until)
    findings.counts["tries of the lock"] = tries
    _check_processes(findings, servers, taken, codes)
    findings.counts["children looked at"] = len(children.children)
    for finding in children.findings:
        findings.fault("descriptor in a child", finding)
    elapsed_s = time.monotonic() - began
    return Outcome(plan, findings, clients.log, rss_mb, os.getloadavg()[0], elapsed_s)


def _check(log: ClientLog, servers: Servers, until: float) -> Findings:
    rows, integrity = read_store(servers.store)
    lines = read_lines(servers.runs)
    findings = check(log, lines, rows, until)
    findings.first_fires_s = find_first_fires(servers.kills, lines)
    findings.counts["kills"] = len(servers.kills)
    if integrity != "ok":
        findings.fault("integrity_check", integrity)
    if log.refused:
        findings.fault("refused", f"{log.refused} connects")
    return findings


async def _kill(servers: Servers, plan: Plan) -> None:
    pauses = random.Random(plan.seed)
    for number in range(plan.kills):
        await asyncio.sleep(pauses.uniform(0, plan.pause_s))
        await servers.kill("standby" if plan.standby and number % 2 else "active")


async def _look(children: ChildObserver, servers: Servers) -> None:
    while True:
        await asyncio.to_thread(children.look, [each.pid for each in servers.members])
        await asyncio.sleep(LOOK_S)


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


def _check_processes(
    findings: Findings, servers: Servers, taken: list[float], codes: list[int]
) -> None:
    """No other process gets the lock while a server is active, and all servers end in order."""
    for at in taken:
        if not any(
            kill.what == "active" and kill.at <= at <= kill.ready_at for kill in servers.kills
        ):
            findings.fault("lock", f"a third process got it at {at}")
    if any(codes):
        findings.fault("exit code", f"{codes}: {servers.log()[-2000:]}")
    text = servers.log()
    findings.counts["tracebacks"] = text.count("Traceback")


def _read_rss_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024
