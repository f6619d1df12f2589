"""Makes one response of what all servers of a cluster say about the dry run of an invocation.

An invocation starts at the first server that has room for all of its jobs, on workers that poll it
or that are its own. So it would start if it would at any server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from schedo.cluster.finding import rank_refusal
from schedo.core.explain import WORKERS_MAX
from schedo.core.worker_obstacles import Obstacle
from schedo.protocol.decode import UNDECODABLE
from schedo.protocol.invocations import describe_room
from schedo.protocol.work import is_own_worker
from schedo.web.http import Request

Record = dict[str, Any]


class _Invocation(Struct):
    dry_run: bool = False


_INVOCATION = msgspec.json.Decoder(_Invocation)


def is_dry_run(request: Request) -> bool:
    """Whether the invocation starts nothing; the handler checks the whole request."""
    try:
        return _INVOCATION.decode(request.body).dry_run
    except UNDECODABLE:
        return False


def merge_dry_runs(parts: Mapping[str, Record], missing: Sequence[str]) -> Record:
    """Return the response of the server that would start it, or else the refusal that says most.

    A remote worker that several servers know is listed once, and counts once if all are listed.
    """
    best = min(parts.values(), key=lambda part: rank_refusal(part.get("refusal")))
    workers, repeated = _join({server: part["workers"] for server, part in parts.items()})
    able = sum(part["able"] for part in parts.values()) - sum(each["ok"] for each in repeated)
    considered = sum(part["considered"] for part in parts.values())
    considered -= sum(not _is_away(each) for each in repeated)
    text = best["text"]
    if considered:
        before = describe_room(best["able"], best["considered"]) if best["considered"] else ""
        why = text.removeprefix(before).removeprefix("; ")
        text = "; ".join(filter(None, (describe_room(able, considered), why)))
    if missing and not best["would_start"]:
        text += f", as far as is known without {' and '.join(missing)}"
    return best | {
        "text": text,
        "able": able,
        "considered": considered,
        "workers": workers[:WORKERS_MAX],
        "has_more_workers": len(workers) > WORKERS_MAX
        or any(part["has_more_workers"] for part in parts.values()),
    }


def _join(said: Mapping[str, Sequence[Record]]) -> tuple[list[Record], list[Record]]:
    """Return each worker once, those that are able first, and what else servers say of them.

    said: what the servers say, by their names.
    """
    own: list[Record] = []
    remote: dict[str, Record] = {}
    repeated: list[Record] = []
    for server, workers in said.items():
        for worker in workers:
            name, placed = worker["worker"], {**worker, "server": server}
            if is_own_worker(name):
                own.append(placed)
            elif name in remote:
                remote[name], other = sorted((remote[name], placed), key=_rank)
                repeated.append(other)
            else:
                remote[name] = placed
    return sorted([*own, *remote.values()], key=_rank), repeated


def _rank(worker: Record) -> tuple[bool, bool, bool]:
    """Return what is smaller for what the server says that knows the worker best."""
    return not worker["ok"], worker["permanent"], _is_away(worker)


def _is_away(worker: Record) -> bool:
    return worker.get("obstacle") == Obstacle.DISCONNECTED
