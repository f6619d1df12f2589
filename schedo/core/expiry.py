"""Ends waiting jobs whose expiry has come: one page after each commit until none is left."""

from __future__ import annotations

from schedo.core.job_table import JobTable
from schedo.core.limits import PAGE_ENTRIES_MAX
from schedo.core.loads import Load, LoadExpired
from schedo.core.model import Job
from schedo.core.states import WAITING, State
from schedo.core.transitions import JobTransitions


class Expiry:
    """Loads expired jobs from the store and ends them. Only one page is loading at a time."""

    def __init__(self, jobs: JobTable, transitions: JobTransitions, loads: list[Load]) -> None:
        """loads: where this adds the loads that it requests."""
        self._jobs = jobs
        self._transitions = transitions
        self._is_loading = False
        self._loads = loads

    def sweep(self, now: int) -> None:
        """Request a page, unless one is loading."""
        if not self._is_loading:
            self._is_loading = True
            self._loads.append(LoadExpired(now, PAGE_ENTRIES_MAX))

    def take(self, load: LoadExpired, page: list[Job], now: int) -> None:
        """End the expired jobs of the page (memory wins), and request the next page."""
        for loaded in page:
            job = self._jobs.find(loaded.id) or loaded
            if job.state in WAITING and job.expires_at is not None and job.expires_at <= now:
                self._transitions.finish(self._jobs.track(job), State.EXPIRED, now)
        self._is_loading = False
        if len(page) == load.limit:
            self.sweep(now)
