"""The calls about workers: the requests of remote ones, and what operators see and change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Sequence

from schedo.core.commands import CompletePolls, Cordon, DetachWorker, Drain, PollBroken
from schedo.core.explain import Explanation
from schedo.core.leases import Lease
from schedo.core.model import Job, LeaseKey, ReadyKey
from schedo.core.remote_reasons import ALONE, Others, RemoteReasons
from schedo.core.worker_commands import RUNS_MAX
from schedo.core.worker_messages import PollRequest, PollResponse, ProgressLine, WorkerStatus
from schedo.core.worker_pool import WorkerSpec
from schedo.engine.action_log import change
from schedo.engine.loop import EngineLoop
from schedo.engine.summary import find_long_waits
from schedo.errors import NotFound


class Workers:
    """The workers of the engine."""

    def __init__(self, loop: EngineLoop) -> None:
        self._loop = loop
        self.elsewhere = loop.workers_elsewhere

    async def work(
        self, request: PollRequest, claim: Callable[[int], Awaitable[None]] | None = None
    ) -> PollResponse:
        """Handle one request of a worker; the caller cancels this when the worker disconnects.

        claim: waits until the response may take this number of bytes, or raises Overloaded; then
        the response has few leases or none.
        """
        if request.came_at is None:
            request = request._replace(came_at=self._loop.clock.now())
        return await self._loop.polls.work(request, claim)

    @property
    def epoch(self) -> int:
        """The epoch of the leases that the engine gives now; 0 during a recovery."""
        return self._loop.scheduler.epoch if self._loop.failure is None else 0

    def held_by(self, name: str) -> list[Lease]:
        """Return the leases that the worker holds, or held when the previous server ended."""
        return self._loop.scheduler.held_by(name)

    def list_unheard(self) -> list[str]:
        """Return the workers that hold leases and have sent no request for some time."""
        return self._loop.scheduler.list_unheard(self._loop.clock.now())

    def get(self, name: str) -> WorkerStatus:
        """Return the status of one worker; raise NotFound."""
        return self._loop.scheduler.worker_status(name, self._loop.clock.now())

    def count_taken(self, name: str) -> int | None:
        """Return how many slots of a worker this server has given away; None: it gets no more.

        That is for attempts, also those that are about to start, and for reservations. During a
        recovery some of them are not known yet.
        """
        if not self._loop.is_open:
            return None
        try:
            known = self.get(name)
        except NotFound:
            return 0
        return None if known.state in ("cordoned", "draining") else known.running

    def list(self, limit: int | None = None, runs_max: int = RUNS_MAX) -> list[WorkerStatus]:
        """Return the attached workers, then the disconnected ones that still have a session.

        limit: how many at most; None: all. runs_max: how many of their running jobs at most.
        """
        return self._loop.scheduler.worker_statuses(self._loop.clock.now(), limit, runs_max)

    def why(self, job: Job, others: Others = ALONE) -> Explanation:
        """Explain what the job waits for, permanent obstacles first, and what each worker says.

        others: what the other servers of a cluster say about its ready key.
        """
        return self._loop.scheduler.explain(job, others=others)

    def explain_remote(self, ready_key: ReadyKey, *, only_able: bool = False) -> RemoteReasons:
        """Return what the remote workers that poll this server say about a job of another one.

        only_able: only a few workers that could ever run it, which takes less time.
        """
        return self._loop.scheduler.explain_remote(ready_key, only_able=only_able)

    def list_waiting_keys(self) -> tuple[Sequence[ReadyKey], Sequence[ReadyKey]]:
        """Return the ready keys of jobs that wait for long, and of those that no worker can run.

        The workers of other servers are left out.
        """
        if self._loop.failure is not None:
            return (), ()
        long = dict.fromkeys(each.ready_key for each in find_long_waits(self._loop))
        return [*long], [*self._loop.scheduler.unserved()]

    def has_suspects_for(self, spec: WorkerSpec) -> bool:
        """Whether poison suspects wait that a worker of this spec could run."""
        return self._loop.failure is None and self._loop.scheduler.has_suspects_for(spec)

    def watch_surplus(self, look: Callable[[], None]) -> None:
        """Call `look` after each turn in which a server of a cluster has decided what starts."""
        self._loop.on_decided = look

    def watch_offers(self, note: Callable[[WorkerSpec], None]) -> None:
        """Call `note` with the spec of each worker that attaches, and with each later one."""
        self._loop.notes.on_offer = note

    def find_surplus(self, most: int, skip: Container[ReadyKey] = ()) -> dict[ReadyKey, int]:
        """Return up to `most` ready keys with jobs that wait only for a worker, and how many.

        skip: ready keys that are left out. During a recovery nothing is found: it is not known yet
        which workers wait.
        """
        if self._loop.failure is not None or not self._loop.is_open:
            return {}
        return self._loop.scheduler.find_surplus(most, skip)

    def release_unsent(self, name: str, leases: Sequence[LeaseKey]) -> None:
        """Release leases that the worker has not got, and will not get; their jobs run again."""
        self._loop.enqueue(PollBroken(0, name, leases))

    def note_left(self, name: str, at: int) -> None:
        """Note when the connection of a worker to its gateway, another server, broke.

        It is lost RECONNECT_US later unless it sends a request through any server.
        """
        self._loop.enqueue(PollBroken(0, name, left_at=at))

    def end_poll(self, name: str | None) -> None:
        """Let the open poll of a worker have its response now; None: those of all."""
        self._loop.enqueue(CompletePolls(name))

    def end_poll_at_once(self, name: str) -> None:
        """Do so before anything else happens: the worker is to have what another server gives."""
        self._loop.enqueue(CompletePolls(name))
        self._loop.take_turn()

    async def cordon(self, name: str, is_cordoned: bool) -> WorkerStatus:
        """Cordon or uncordon the worker; only a remote one stays cordoned when servers restart."""
        return await change(self._loop, Cordon(name, is_cordoned))

    async def drain(self, name: str) -> WorkerStatus:
        """Cordon the worker and request that it finishes its attempts and shuts down."""
        return await change(self._loop, Drain(name))

    def may_start(self) -> bool:
        """Whether no other server can have the jobs of this one; a process may have been stopped.

        What has been decided before is to be started only if this is still so.
        """
        return self._loop.is_sure is None or self._loop.is_sure()

    def lose(self, name: str, message: str) -> None:
        """End the attempts of a worker that has certainly died; they are lost."""
        self._loop.enqueue(DetachWorker(name, message))

    def progress_of(self, job_id: int) -> Sequence[ProgressLine]:
        """Return the recent progress of the job's running attempt, oldest first."""
        return self._loop.notes.progress.of(job_id)

    def last_progress_of(self, job_id: int) -> ProgressLine | None:
        """Return the latest progress of the job's running attempt."""
        return self._loop.notes.progress.last_of(job_id)


def spec_of(seen: WorkerStatus) -> WorkerSpec:
    """Return the spec of a worker, to match it with requirements."""
    return WorkerSpec(
        seen.name,
        seen.slots,
        tasks=seen.tasks,
        queues=seen.queues,
        isolated=seen.isolated,
        labels=seen.labels,
        resources=seen.resources,
    )
