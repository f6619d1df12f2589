"""The workers of all servers as one list.

A server's own workers are listed for each server. A remote worker is one entry, although several
servers may know it: those that it polls, and those whose jobs it runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from schedo.core.worker_commands import WORKER_RUNS_MAX
from schedo.protocol.times import parse_instant

Record = dict[str, Any]


def join_workers(lists: Mapping[str, Sequence[Record]]) -> list[Record]:
    """Return the workers of the lists, given by server, in the order of their names."""
    own: list[Record] = []
    remote: dict[str, list[Record]] = {}
    for server, workers in lists.items():
        for worker in workers:
            placed = {**worker, "server": server}
            if worker["kind"] == "remote":
                remote.setdefault(worker["name"], []).append(placed)
            else:
                own.append(placed)
    return sorted([*own, *map(_join, remote.values())], key=itemgetter("name", "server"))


def _join(entries: Sequence[Record]) -> Record:
    """Return one entry for a remote worker: as the server sees it that it has polled last."""
    if len(entries) == 1:
        return entries[0]
    newest = max(entries, key=_polled_at)
    running = sum(each["running"] for each in entries)
    used: dict[str, int | float] = {}
    for each in entries:
        for name, amount in each["resources_used"].items():
            used[name] = used.get(name, 0) + amount
    runs = sorted((run for each in entries for run in each["runs"]), key=itemgetter("started_at"))
    return newest | {
        "running": running,
        "free": max(0, newest["slots"] - running),
        "resources_used": used,
        "runs": runs[:WORKER_RUNS_MAX],
    }


def _polled_at(worker: Record) -> tuple[bool, bool, int]:
    """Return what is greater for the entry of the server that the worker has polled last.

    A server that knows the worker only through its gateway may have heard of the worker later than
    the gateway has: the part of a request arrives after the request. So that entry comes last.
    """
    seen_at = worker.get("last_seen_at")
    is_connected = worker["state"] != "disconnected"
    is_polled = not worker.get("relayed", False)
    return is_connected, is_polled, 0 if seen_at is None else parse_instant(seen_at)
