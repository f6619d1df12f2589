"""SIGSTOP of the active server beside a standby, which may kill it or only says so."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from typing import NamedTuple

from tests.e2e.takeover.evidence import Kill
from tests.e2e.takeover.processes import DEADLINE_S, Servers
from tests.sources import ROOT

KILL_AFTER = "5s"
REPORTED_S = 5.0  # within which `schedo status --check` says that the server is stuck
REPLACED_S = 5.1  # within which a standby that may kill it is active


class StuckServer(NamedTuple):
    """A server that SIGSTOP has stopped.

    noticed_s: until it was reported, or the standby was active. is_late: that took too long.
    """

    noticed_s: float
    is_late: bool
    fault: str = ""


async def stop_and_continue(servers: Servers) -> StuckServer:
    """Stop the active server, wait until the status reports that it is stuck, and continue it.

    The store must not change while the server is stopped, and the server stays the active one.
    """
    await servers.wait_standby(warm=True)
    pid = servers.active_pid
    assert pid is not None, "a server is active"
    at = time.monotonic()
    os.kill(pid, signal.SIGSTOP)
    await asyncio.sleep(0.1)  # for what was written in the kernel already
    before = _files(servers)
    text, noticed_s = "", 0.0
    while "is stuck" not in text and noticed_s < DEADLINE_S:
        text = await asyncio.to_thread(_read_status, servers)
        noticed_s = time.monotonic() - at
    after = _files(servers)
    os.kill(pid, signal.SIGCONT)
    await servers.wait_ready()
    fault = ""
    if before != after:
        fault = f"the store changed: {before}, {after}"
    elif servers.active_pid != pid:
        fault = "another server is active"
    return StuckServer(noticed_s, noticed_s > REPORTED_S, fault)


async def stop_and_be_killed(servers: Servers) -> StuckServer:
    """Stop the active server until the standby has killed it and is active."""
    await servers.wait_standby(warm=True)
    stopped = servers.active
    assert stopped is not None, "a server is active"
    at = time.monotonic()
    os.kill(stopped.pid, signal.SIGSTOP)
    code = await asyncio.to_thread(stopped.wait, DEADLINE_S)
    ready_at = await servers.wait_ready()
    servers.kills.append(Kill("stopped", stopped.pid, at, ready_at))
    took_s = ready_at - at
    fault = "" if code == -signal.SIGKILL else f"the stopped process ended with {code}"
    return StuckServer(took_s, took_s > REPLACED_S, fault)


def _files(servers: Servers) -> list[tuple[str, int, int]]:
    """Return the size and the time of the last change of each file of the store."""
    found = []
    for suffix in ("", "-wal", ".last-commit"):
        path = servers.store.with_name(servers.store.name + suffix)
        if path.exists():
            found.append((path.name, path.stat().st_size, path.stat().st_mtime_ns))
    return found


def _read_status(servers: Servers) -> str:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SCHEDO_")}
    done = subprocess.run(
        [sys.executable, "-m", "schedo", "status", "--check", "--store", str(servers.store)],
        env=kept | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr if done.returncode else ""
