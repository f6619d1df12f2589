"""The live figures of all servers as one: the events of each second that a stream brings.

The figures of one second come from each server on its own timer. Those of the others wait for the
next `tick` of the server that was asked, and none is counted twice. Their counts of queues are
kept, so that an event about a queue of one server has the jobs of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from schedo.cluster.live_workers import LiveWorkers
from schedo.cluster.merging import (
    LARGEST,
    Record,
    add_counts,
    add_known,
    add_up,
    largest,
    merge_verdicts,
)
from schedo.core.series import COUNTS, GAUGES

Counts = tuple[int, Mapping[str, int]]  # how many jobs of a queue run, and wait, by their state


class LiveFigures:
    """What one stream knows of all servers."""

    def __init__(self, own: str) -> None:
        """own: the name of the server that was asked; its ticks are those of the stream."""
        self._own = own
        self._ticks: dict[str, Record] = {}  # the last one of each server
        self._gauges: dict[str, Record] = {}  # the last figures of each server
        self._new: list[Record] = []  # ticks whose figures no tick of the stream has yet
        # By server, and by queue; a queue without jobs has none, once the server's list is noted.
        self._queues: dict[str, dict[str, Counts]] = {}
        self._listed: set[str] = set()  # servers
        self.workers = LiveWorkers()

    def note_queues(self, server: str, queues: Sequence[Record]) -> None:
        """Note the counts of a server's queues, as it lists them when the stream begins."""
        known = self._queues.setdefault(server, {})
        for queue in queues:  # what an event has told meanwhile is newer
            known.setdefault(queue["name"], (queue["running"], queue["waiting"]))
        self._queues[server] = {name: each for name, each in known.items() if _has_jobs(each)}
        self._listed.add(server)

    def merge(self, server: str, name: str, data: Record) -> Record | None:
        """Return the data of an event with what the other servers have told; None: it waits."""
        merged: Record | None = _MERGERS[name](self, server, data)
        return merged

    def _tick(self, server: str, data: Record) -> Record | None:
        self._ticks[server] = data
        if "figures" in data:
            self._gauges[server] = data["figures"]
            self._new.append(data)
        if server != self._own:
            return None
        ticks = self._ticks
        slots = self.workers.count_slots(ticks)
        merged = data | {
            "verdict": merge_verdicts({self._own: data, **ticks}, ()),
            "running": sum(each["running"] for each in ticks.values()),
            "slots": sum(each["slots"] for each in ticks.values()) if slots is None else slots,
        }
        new, self._new = self._new, []
        if new:
            merged["figures"] = self._add_figures(new)
            if slots is not None:
                merged["figures"]["slots"] = slots
            merged["lateness"] = {
                kind: add_up([each["lateness"][kind] for each in new])
                for kind in new[0]["lateness"]
            }
        return merged

    def _add_figures(self, new: Sequence[Record]) -> Record:
        known = self._gauges.values()
        counted = [each["figures"] for each in new]
        names = [name for name in COUNTS if name in counted[0]]
        counts = {name: sum(each[name] for each in counted) for name in names}
        gauges = {
            name: (largest if name in LARGEST else add_known)(each[name] for each in known)
            for name in GAUGES
        }
        return counts | gauges

    def _count_queues(self, server: str, data: Record) -> Record:
        if any("waiting" in each for each in data.get("queues", ())):
            data["queues"] = [self._count_queue(server, each) for each in data["queues"]]
        return data

    def _count_queue(self, server: str, queue: Record) -> Record:
        name, counts = queue["name"], (queue["running"], queue["waiting"])
        known = self._queues.setdefault(server, {})
        known[name] = counts
        if server in self._listed and not _has_jobs(counts):
            del known[name]
        found = [known[name] for known in self._queues.values() if name in known]
        running = sum(each for each, _ in found)
        return queue | {"running": running, "waiting": add_counts(*(each for _, each in found))}

    def _merge_workers(self, server: str, data: Record) -> Record:
        return self.workers.merge(server, data)


def _has_jobs(counts: Counts) -> bool:
    running, waiting = counts
    return bool(running or any(waiting.values()))


_MERGERS: Mapping[str, Any] = {
    "tick": LiveFigures._tick,
    "queues": LiveFigures._count_queues,
    "workers": LiveFigures._merge_workers,
}
MERGED = frozenset(_MERGERS)  # the events that are not passed on as they are
