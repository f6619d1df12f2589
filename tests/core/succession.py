"""A server that is killed before it has stored a start, and the next one."""

from __future__ import annotations

from typing import Any

from schedo.core.commands import Poll
from schedo.core.leases import Lease
from schedo.core.model import JobSpec
from schedo.core.states import State
from tests.core.builders import MILLISECOND, SECOND, make_spec
from tests.core.remote_site import Site, make_poll

KILLED = 10 * SECOND
JOB_ID = 64  # of the first job
NEXT = KILLED + 10 * MILLISECOND  # the first request to the next server


def start_undurably(site: Site, spec: JobSpec | None = None, **fields: Any) -> Lease:
    """Let worker a begin a job whose start is not committed; return the lease."""
    job = site.submit(spec or make_spec(), KILLED - SECOND)
    site.apply(Poll(99, make_poll(**{"max_leases": None} | fields)), KILLED - SECOND)
    site.tick(KILLED - SECOND)
    [lease] = site.response(99).leases
    assert site.store.jobs[job.id].state is not State.RUNNING
    return lease


def succeed(site: Site, now: int = KILLED, *, was_killed: bool = True) -> None:
    """Kill the server and start the next one on what is durable."""
    site.scheduler = site._recovered(now)
    site.scheduler.follow_server(now, was_killed=was_killed)
    site.scheduler.recovered(now)


def crashed(spec: JobSpec | None = None, **fields: Any) -> tuple[Site, Lease]:
    """Return the next server, and the lease that worker a has of the one that was killed."""
    site = Site()
    lease = start_undurably(site, spec, **fields)
    succeed(site)
    return site, lease


def is_continued(site: Site, lease: Lease) -> bool:
    """Whether the server counts just this attempt as running."""
    job = site.job(lease.key.job_id)
    return job.state is State.RUNNING and job.key == lease.key and job.worker == lease.worker
