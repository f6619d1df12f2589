"""The adoption of attempts that the previous server started and had not stored when it died.

A worker gets its lease before the start is durable. So the store may say that a job still waits,
while a worker runs its next attempt and reports it to the new server. The new server believes the
worker: it counts the attempt as running, unless it has decided otherwise meanwhile. So that there
is something left to believe, jobs that were due before the new server began go to remote workers
only when these have had a moment to reconnect. See docs/adr/0035.
"""

from __future__ import annotations

from msgspec.structs import replace

from schedo.core.job_table import JobTable
from schedo.core.leases import Lease
from schedo.core.limits import SECOND
from schedo.core.loads import NOTHING_LOADED, Loaded, LoadJobs, Needs
from schedo.core.model import Job, LeaseKey, Location
from schedo.core.pauses import Pauses
from schedo.core.running import RunningAttempts, make_lease
from schedo.core.worker_messages import PollRequest
from schedo.core.worker_pool import Worker
from schedo.core.worker_session import (
    RECONNECT_US,
    RESTART_TIMEOUT_US,
    HeldLease,
    PreviousServer,
    Session,
    SessionTable,
)

# Workers that kept their connection's address reconnect within a few milliseconds.
HOLD_BACK_US = SECOND // 20
# Of a long queue, the first jobs are those that may have been started.
HELD_BACK_MAX = 1_000
LOADED_MAX = 1_000  # attempts of one request; a worker seldom runs more than some dozens
_HELD_BACK = Location.HELD_BACK


class Adoption:
    """Decides which attempts of the previous server continue, and holds their jobs back."""

    def __init__(
        self, table: SessionTable, jobs: JobTable, attempts: RunningAttempts, pauses: Pauses
    ) -> None:
        self._table = table
        self._jobs = jobs
        self._attempts = attempts
        self._pauses = pauses
        self._loaded: dict[int, Job] = {}  # for the request that is applied now
        self._adopted: list[Lease] = []
        self._held_back: list[int] = []
        self._until: int | None = None  # jobs are held back; None: no worker has polled yet

    def note_poll(self, now: int) -> None:
        """Hold jobs back from now on, if this is the first poll after the previous server."""
        previous = self._find_previous(now)
        if previous is None or self._until is not None:
            return
        if previous.was_killed and now - previous.ended_at < RECONNECT_US:
            self._until = now + HOLD_BACK_US

    # Attempts.

    def needs(self, request: PollRequest, now: int, loaded: Loaded) -> Needs | None:
        """Return the loads of the jobs whose attempts the request may want to continue."""
        self._loaded = {}
        previous = self._find_previous(now)
        if previous is None:
            return None
        self.note_poll(now)
        if loaded is not NOTHING_LOADED:
            for load, found in loaded.items():
                if isinstance(load, LoadJobs):
                    self._loaded |= found
            return None
        session = self._table.by_name.get(request.worker)
        known = session.held if session is not None else {}
        keys = (*(request.running or ()), *(result.key for result in request.reports))
        wanted = {
            key.job_id: None
            for key in keys
            if key.epoch <= previous.last_epoch
            and key.job_id <= previous.last_id
            and key not in known
            and self._jobs.find(key.job_id) is None
        }
        return Needs((LoadJobs((*wanted,)[:LOADED_MAX]),)) if wanted else None

    def continue_attempt(self, session: Session, key: LeaseKey, now: int) -> bool:
        """Continue the attempt if the worker may run it; return whether it holds the lease now."""
        previous = self._find_previous(now)
        if previous is None:
            return False
        job = self._jobs.find_loaded(key.job_id, self._loaded.get(key.job_id))
        if job is None or not previous.may_have_started(key, job):
            return False
        if not self._may_run(session, job):
            return False
        # The store does not say when the attempt began: its timeout begins again.
        lease = replace(make_lease(key, session.name, job), started_at=now)
        self._attempts.resume(self._jobs.track(job), lease, now, now)
        held = session.held[key] = HeldLease(lease, now, is_recovered=True)
        held.is_unconfirmed = False
        self._adopted.append(lease)
        return True

    def _may_run(self, session: Session, job: Job) -> bool:
        """Whether the job could be given to this worker now."""
        return (
            not self._pauses.starts
            and len(session.held) < session.spec.slots
            and session.spec.serves(job.ready_key)
            and not session.spec.durable_starts
            and self._jobs.ready_queues.queue_state(job.queue).is_open
        )

    def _find_previous(self, now: int) -> PreviousServer | None:
        """Return the previous server while its workers may still come with attempts of it."""
        previous = self._table.previous
        if previous is None or now - previous.ended_at >= RESTART_TIMEOUT_US:
            return None
        return previous

    def take(self) -> list[Lease]:
        """Return the leases that were adopted since the last call."""
        adopted, self._adopted = self._adopted, []
        return adopted

    # Jobs that are held back.

    def awaits_workers(self, now: int) -> bool:
        """Whether workers that may run attempts of the previous server are still awaited."""
        return self._until is not None and now < self._until

    def hold_back(self, job: Job, worker: Worker) -> bool:
        """Keep a ready job from a remote worker if another one may run it; return whether so."""
        previous = self._table.previous
        if (
            not worker.spec.polls
            or previous is None
            or not previous.may_have_started_next(job)
            or len(self._held_back) >= HELD_BACK_MAX
        ):
            return False
        job.location = _HELD_BACK
        self._held_back.append(job.id)
        return True

    def tick(self, now: int) -> None:
        """Make the jobs ready again that were held back long enough."""
        if self._held_back and not self.awaits_workers(now):
            held_back, self._held_back = self._held_back, []
            self._jobs.put_back(held_back)

    def next_at(self) -> int | None:
        """Return the next instant at which `tick` has something to do, or None."""
        return self._until if self._held_back else None

    def shift(self, delta_us: int) -> None:
        """Shift the instants after a clock change, because they count elapsed time."""
        if self._until is not None:
            self._until += delta_us
        previous = self._table.previous
        if previous is not None:
            ended_at = previous.ended_at + delta_us
            self._table.previous = previous._replace(ended_at=ended_at)
