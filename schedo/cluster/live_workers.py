"""The workers of all servers in the events of a stream: a remote one is one worker.

Several servers may know a remote worker: those that it polls, and those whose jobs it runs. An
event of one of them gets what the last events of the others have said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain

from schedo.cluster.merging import OPEN, Record, add_counts
from schedo.engine.summary import WORKERS_MAX

_LISTED = ("name", "kind", "state", "slots", "running", "relayed")  # also in events


class LiveWorkers:
    """What one stream knows of the workers."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Record]] = {}  # by name, then by server
        self._complete: set[str] = set()  # servers whose events tell of all of their workers

    def note(self, server: str, workers: Sequence[Record]) -> None:
        """Note the workers that a server lists when the stream begins, unless they are many."""
        if len(workers) > WORKERS_MAX:
            return  # its events leave some of them out
        self._complete.add(server)
        for worker in workers:  # what an event has said meanwhile is newer
            tasks = Counter(run["task"] for run in worker["runs"])
            seen = {"running_tasks": dict(tasks), "health": worker.get("health")}
            kept = {name: worker[name] for name in _LISTED if name in worker}
            self._known.setdefault(worker["name"], {}).setdefault(server, kept | seen)

    def merge(self, server: str, data: Record) -> Record:
        """Return the event of a server with what the others know of its workers.

        A worker that another server still knows is not gone, but has changed.
        """
        changed = [each["name"] for each in data["workers"]]
        for worker in data["workers"]:
            known = self._known.setdefault(worker["name"], {})
            known[server] = known.get(server, {}) | worker  # an older server does not say its kind
        if sum(server in known for known in self._known.values()) >= WORKERS_MAX:
            self._complete.discard(server)  # it may have more
        gone = []
        for name in data["gone"]:
            known = self._known.get(name, {})
            if known.pop(server, None) is not None and _is_remote(known):
                changed.append(name)
            if not known:
                self._known.pop(name, None)
                gone.append(name)
        return {"workers": [self._describe(server, name) for name in changed], "gone": gone}

    def _describe(self, server: str, name: str) -> Record:
        known = self._known[name]
        return _join(server, known) if _is_remote(known) else known[server] | {"server": server}

    def count_slots(self, servers: Collection[str]) -> int | None:
        """Return the slots of all workers of these servers; None: not all of them are known."""
        if not self._complete.issuperset(servers):
            return None
        described = (
            [_join("", known)] if _is_remote(known) else known.values()
            for known in self._known.values()
        )
        slots: list[int] = [each["slots"] for each in chain(*described) if each["state"] in OPEN]
        return sum(slots)


def _is_remote(known: Mapping[str, Record]) -> bool:
    return any(each.get("kind") == "remote" for each in known.values())


def _join(server: str, known: Mapping[str, Record]) -> Record:
    """Return what all servers know as one worker.

    State and slots are those that this server sees if the worker polls it, else those of another
    server, at best of one that it polls.
    """
    connected = {at: each for at, each in known.items() if each["state"] != "disconnected"}
    polled = {at: each for at, each in connected.items() if not each.get("relayed", False)}
    found = polled or connected or known
    at = server if server in found else next(iter(found))
    is_healthy = any(each["health"] is None for each in found.values())
    return found[at] | {
        "running": sum(each["running"] for each in known.values()),
        "running_tasks": add_counts(*(each["running_tasks"] for each in known.values())),
        "health": None if is_healthy else found[at]["health"],
        "server": at,
    }
