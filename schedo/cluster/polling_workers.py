"""The workers that poll a gateway, by name.

A gateway hears nothing of a worker that ends, or that goes on to poll another server. So it forgets
each one after a while.
"""

from __future__ import annotations

from collections.abc import Callable

from schedo.cluster.polling_worker import PollingWorker
from schedo.cluster.worker_call import WorkerCall
from schedo.core.limits import SECOND
from schedo.protocol.work import SESSION_TIMEOUT_US

KEPT_S = SESSION_TIMEOUT_US[1] / SECOND  # after so long without a request, any worker is lost
LOOK_S = 60.0  # between two looks at all of them


class PollingWorkers:
    """Those that wait here, or that run something for other servers, or may do so."""

    def __init__(self, read_time: Callable[[], float]) -> None:
        """read_time: returns the time of the event loop."""
        self._read_time = read_time
        self._by_name: dict[str, PollingWorker] = {}
        self._looked_at = read_time()

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def note_request(self, name: str) -> PollingWorker:
        """Return the worker of this name, which has sent a request."""
        now = self._forget_old()
        worker = self._find_or_add(name)
        worker.asked_at = now
        return worker

    def doubt(self, name: str, no: int) -> WorkerCall | None:
        """Note that a server asks what the worker runs; return its poll that waits, if it is new.

        The worker may poll this server next, also if it has never done so before.
        """
        now = self._forget_old()
        is_new = name not in self._by_name
        worker = self._find_or_add(name)
        if is_new:
            worker.asked_at = now
        if no in worker.unanswered:
            return None
        worker.note_unanswered(no)
        return worker.poll

    def _find_or_add(self, name: str) -> PollingWorker:
        worker = self._by_name.get(name)
        if worker is None:
            worker = self._by_name[name] = PollingWorker(name)
        return worker

    def forget_if_done(self, worker: PollingWorker) -> None:
        """Forget the worker, of which a request has ended, unless it is still to be known."""
        if worker.is_done and self._by_name.get(worker.name) is worker:
            del self._by_name[worker.name]

    def note_change(self) -> None:
        """Note that a shard has another owner, or that a server has come or gone."""
        for worker in self._by_name.values():
            worker.paces.note_change()

    def list_polls(self) -> list[WorkerCall]:
        """Return the polls: first those that wait, then those whose results are on their way."""
        polls = [each.poll for each in self._by_name.values() if each.poll is not None]
        return [*(each for each in polls if each.is_here), *(p for p in polls if not p.is_here)]

    def _forget_old(self) -> float:
        """Forget, now and then, those that have sent nothing for long; return the time."""
        now = self._read_time()
        if now - self._looked_at <= LOOK_S:
            return now
        self._looked_at = now
        for name, worker in [*self._by_name.items()]:
            if worker.poll is None and now - worker.asked_at > KEPT_S:
                del self._by_name[name]
        return now
