"""One run: servers, clients, workers and observers; kills at uniform instants; then the checker."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from pathlib import Path

from bench.server.filling import fill
from tests.e2e.takeover.checker import (
    Findings,
    check,
    check_remote,
    find_first_fires,
    find_lateness,
)
from tests.e2e.takeover.clients import TIMERS_FAR_AHEAD_S, TIMERS_S, Clients
from tests.e2e.takeover.evidence import WAITING, ClientLog, read_lines, read_store
from tests.e2e.takeover.incidents import Incidents
from tests.e2e.takeover.observers import Observers
from tests.e2e.takeover.plan import Outcome, Plan
from tests.e2e.takeover.processes import Servers, start_worker
from tests.e2e.takeover.raw_http import Broken, Client
from tests.e2e.takeover.stepped import SteppedServer
from tests.e2e.takeover.stuck import KILL_AFTER
from tests.e2e.takeover.traffic import TrafficProcesses
from tests.e2e.takeover.upgraded import UpgradedServer

IDLE_S = 90.0  # a worker that was killed is lost after 30 s, and its jobs wait some seconds then
TOMORROW_S = 86_400.0
OWNER_S = 0.1  # within which a server answers after a death at a step


async def run(directory: Path, plan: Plan) -> Outcome:
    """Kill or upgrade the servers as planned, then let everything end, and check it."""
    began = time.monotonic()
    servers = _make_servers(directory, plan)
    if plan.waiting:
        await asyncio.to_thread(fill, servers.store, plan.waiting, TOMORROW_S, WAITING)
    await servers.start()
    observers = Observers(servers)
    worker = start_worker(directory, servers.port, servers.runs)
    clients = Clients((servers.port,), servers.runs, plan.seed, plan.load)
    outcome = Outcome(plan, Findings(), clients.log, {})
    try:
        until = await _load(servers, clients, outcome)
    finally:
        observers.stop()
        codes = await servers.stop()
        worker.terminate()
        worker.wait()
    _check(outcome, servers, until)
    observers.check(outcome.findings)
    _check_ends(outcome.findings, codes, outcome.traffic)
    outcome.elapsed_s = time.monotonic() - began
    return outcome


async def _load(servers: Servers, clients: Clients, outcome: Outcome) -> float:
    """Let all happen under load; return the Unix time up to which schedules must have fired."""
    plan = outcome.plan
    is_quiet = plan.may_kill or plan.stops
    traffic = None if is_quiet else TrafficProcesses(servers.port, plan.rate)
    try:
        await clients.start()
        loaded_at = time.monotonic()
        await Incidents(servers, outcome).carry_out()
        outcome.loaded_s = time.monotonic() - loaded_at
        until = time.time() - 1
        await clients.stop()
    finally:
        if traffic is not None:
            outcome.traffic = await asyncio.to_thread(traffic.stop)
    await wait_idle((servers.port,), clients.log, ends_tomorrow=bool(plan.waiting))
    outcome.rss_mb = _read_rss_mb(servers)
    return until


def _make_servers(directory: Path, plan: Plan) -> Servers:
    if plan.steps:
        return SteppedServer(directory, plan.seed)
    if not plan.kills and not plan.stops:
        return UpgradedServer(directory)
    failpoints = random.Random(plan.seed) if plan.failpoints else None
    servers = Servers(directory, standby=plan.standby, failpoints=failpoints)
    if plan.is_killed_stuck:
        servers.options = ("--kill-stuck", KILL_AFTER)
    return servers


def _check(outcome: Outcome, servers: Servers, until: float) -> None:
    plan, log = outcome.plan, outcome.log
    rows, integrity = read_store(servers.store)
    lines = read_lines(servers.runs)
    findings = outcome.findings = check(log, lines, rows, until, may_repeat=plan.may_kill)
    warm = [kill for kill in servers.kills if kill.is_warm]
    for what, kills in (
        ("kill to first fire", warm),
        ("the same, no processor time stolen", [kill for kill in warm if not kill.stolen_s]),
        ("the same, cold", [kill for kill in servers.kills if not kill.is_warm]),
    ):
        outcome.times_s[what] = find_first_fires(kills, lines)
    findings.lateness_s = find_lateness(lines, time.time() - time.monotonic())
    findings.counts.update(f"kill, {kill.what}" for kill in servers.kills)
    findings.counts["tracebacks"] = servers.log().count("Traceback")
    if not plan.may_kill and (log.broken or log.unfinished or log.server_errors):
        findings.fault("request", f"{log.broken} broken, {log.unfinished}, {log.server_errors}")
    if integrity != "ok":
        findings.fault("integrity_check", integrity)
    if log.refused:
        findings.fault("refused", f"{log.refused} connects")
    for fault in outcome.faults:
        findings.fault("incident", fault)
    if plan.is_at_rest:
        check_remote(findings, findings.counts["kill, active"])
    if plan.steps:
        _check_owners(outcome, servers)


def _check_owners(outcome: Outcome, servers: Servers) -> None:
    """Soon after each death at a step there is a server."""
    for kill in servers.kills:
        took_s = kill.ready_at - kill.at
        outcome.times_s.setdefault("death to the next answer", []).append(took_s)
        if took_s > OWNER_S and outcome.plan.is_at_rest:
            outcome.findings.fault("owner", f"after {took_s * 1000:.0f} ms: {kill}")


def _check_ends(findings: Findings, codes: list[int], traffic: dict[str, int]) -> None:
    """All servers end in order, and all requests are answered."""
    if any(codes):
        findings.fault("exit code", str(codes))
    for what, count in traffic.items():
        if what.startswith("failed"):
            findings.fault("request", f"{count} {what}")


async def wait_idle(ports: Sequence[int], log: ClientLog, *, ends_tomorrow: bool = False) -> None:
    """Return once no job waits or runs except those that schedules make each second.

    ends_tomorrow: there are jobs in the store that are due tomorrow.
    """
    client = Client(ports, log)
    deadline = time.monotonic() + IDLE_S
    states = ["scheduled", "queued", "running", "retrying", "blocked"]
    if ends_tomorrow:  # they would be listed; those of the clients are due by then
        states.remove("scheduled")
        await asyncio.sleep(TIMERS_FAR_AHEAD_S + TIMERS_S)
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


def _read_rss_mb(servers: Servers) -> dict[str, float]:
    """Return the resident memory of each server process."""
    active, found = servers.active_pid, {}
    for pid in servers.pids:
        text = Path(f"/proc/{pid}/status").read_text()
        name = "the active" if pid == active else f"process {pid}"
        found[name] = int(text.split("VmRSS:")[1].split()[0]) / 1024
    return found
