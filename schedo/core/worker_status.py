"""The status of workers, for operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from schedo.core.instants import describe_duration
from schedo.core.limits import SECOND
from schedo.core.worker_messages import Run, WorkerStatus
from schedo.core.worker_pool import Worker
from schedo.core.worker_session import Session, SessionState

UNPOLLED_US = 30 * SECOND  # with free slots and no poll for so long, a worker has a problem

# The workers in the engine's own process; the second runs poison suspects, one at a time.
EMBEDDED = "embedded"
EMBEDDED_ALONE = "embedded-alone"


def kind(name: str) -> Literal["remote", "process", "server", "embedded"]:
    """Return where the worker of this name runs; the server's own workers have reserved names."""
    if name in (EMBEDDED, EMBEDDED_ALONE):
        return "embedded"
    if name == "local":
        return "server"
    return "process" if name.startswith("process-") else "remote"


def status(
    worker: Worker, session: Session | None, now: int, runs: Sequence[Run] = ()
) -> WorkerStatus:
    """Return the worker's status at `now`; the server's own workers have no session."""
    spec = worker.spec
    return WorkerStatus(
        spec.id,
        kind(spec.id),
        _state(worker, session),
        spec.slots,
        len(worker.running),
        spec.tasks,
        spec.queues,
        spec.labels,
        spec.resources,
        {name: used for name, used in worker.used.items() if used},
        spec.version,
        session.connected_at if session is not None else None,
        session.last_seen_at if session is not None else None,
        session.timeout_us / SECOND if session is not None else None,
        _find_health_problem(worker, session, now),
        spec.isolated,
        runs,
        sum(key.job_id < 0 for key in worker.running),
        spec.is_relayed,
    )


def _state(worker: Worker, session: Session | None) -> str:
    """Return the worker's state: active, cordoned, draining or disconnected."""
    if session is not None and not session.is_connected:
        return "disconnected"
    is_leaving = session is not None and (
        session.drain_requested or session.state is SessionState.DRAINING
    )
    if is_leaving or not worker.is_open:
        return "draining"
    if worker.is_cordoned:
        return "cordoned"
    is_away = session is None and worker.spec.polls
    return "disconnected" if is_away else "active"


def _find_health_problem(worker: Worker, session: Session | None, now: int) -> str | None:
    """Return the health problem of a worker with free slots that does not poll, or None."""
    if session is None or session.state is SessionState.DRAINING or session.waiting is not None:
        return None
    if not session.is_connected:
        return "it is not connected"
    unpolled_us = now - session.polled_at
    if worker.spec.slots <= len(worker.running) or unpolled_us <= UNPOLLED_US:
        return None
    unpolled = describe_duration(unpolled_us // SECOND * SECOND)
    return f"it has free slots, but has not polled for {unpolled}"
