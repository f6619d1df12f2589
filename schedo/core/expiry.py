"""Ends waiting jobs whose expiry has come: a page after each commit, until none is left."""

from __future__ import annotations

from schedo.core.job_table import JobTable
from schedo.core.limits import PAGE_ENTRIES_MAX
from schedo.core.loads import Load, LoadExpired
from schedo.core.model import Job
from schedo.core.states import WAITING, State
from schedo.core.transitions import JobTransitions


class Expiry:
    """Asks the store for such jobs; one page is on its way at a time."""

    def __init__(self, jobs: JobTable, transitions: JobTransitions) -> None:
        self._jobs = jobs
        self._transitions = transitions
        self._is_loading = False
        self.loads: list[Load] = []

    def sweep(self, now: int) -> None:
        """Ask for the first page, unless one is on its way."""
        if not self._is_loading:
            self._is_loading = True
            self.loads.append(LoadExpired(now, PAGE_ENTRIES_MAX))

    def take(self, load: LoadExpired, page: list[Job], now: int) -> None:
        """End the jobs of the page, as far as memory agrees, and ask for the next one."""
        for loaded in page:
            job = self._jobs.find(loaded.id) or loaded
            if job.state in WAITING and job.expires_at is not None and job.expires_at <= now:
                self._transitions.finish(self._jobs.track(job), State.EXPIRED, now)
        self._is_loading = False
        if len(page) == load.limit:
            self.sweep(now)
