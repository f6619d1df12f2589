"""The pool isolates the poison suspects that other workers of the same tasks leave behind."""

from __future__ import annotations

from dataclasses import replace

from schedo.core.leases import Blame, Lost
from tests.engine.world import HandWorker
from tests.worker.site import Site

ADD = ("add", {"a": 1, "b": 2})


async def test_child_processes_run_the_suspects_of_another_worker(site: Site) -> None:
    far = HandWorker(site.engine, "far", slots=100)  # the most free slots, so it gets the jobs
    far.spec = replace(far.spec, tasks=frozenset({"add"}))
    far.attach()
    jobs = await site.submit_together(ADD, ADD)
    await site.engine.flush()
    assert len(far.leases) == len(jobs)

    while far.leases:
        far.end(Lost("it died", Blame.SHARED))
    site.engine.detach("far", "it died")

    ended = [await site.end(job) for job in jobs]
    assert [(job["result"], job["losses"]) for job in ended] == [(3, 0), (3, 0)]
    assert [each.slots for each in site.engine.sessions.list() if each.isolated] == [1]
