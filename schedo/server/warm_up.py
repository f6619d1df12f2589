"""What a server does before it has its store: afterwards only the store is missing.

One run of an engine on a scratch file belongs to it, so that the code of a take-over has run.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from schedo.clock import SystemClock
from schedo.core.leases import AttemptResult, Completed, Lease, StopRequest
from schedo.core.model import Job, JobSpec
from schedo.core.worker_pool import WorkerSpec
from schedo.engine.call_results import Accepted
from schedo.engine.engine import Engine
from schedo.errors import SchedoError
from schedo.server.process import spare_collector
from schedo.store import open_store
from schedo.web.handler_table import import_all

if TYPE_CHECKING:
    from schedo.server.server import Server

log = logging.getLogger("schedo")

_TASK = "scratch"
_WAIT_S = 5.0


async def warm_up(server: Server) -> float:
    """Do everything that needs no store; return how long it took, in milliseconds."""
    began_at = time.monotonic()
    await server.workers.prepare()
    await run_scratch_engine()
    await server.store.prepare()
    import_all()  # so that the first requests after a take-over find their code loaded
    spare_collector()
    return (time.monotonic() - began_at) * 1_000


async def run_scratch_engine() -> None:
    """Run a job in an engine of its own; a problem with the scratch file is only logged."""
    import tempfile  # only a standby needs it

    try:
        with tempfile.TemporaryDirectory(prefix="schedo-") as directory:
            for _ in range(2):  # the second one opens a file that exists
                await _run_engine(f"{directory}/scratch.db")
    except (OSError, SchedoError) as error:
        log.warning("the warm-up on a scratch file has failed: %s", error)


async def _run_engine(path: str) -> None:
    engine = Engine(open_store(path), SystemClock())
    await engine.start()
    try:
        engine.attach(WorkerSpec(_TASK, 1, frozenset({_TASK})), _Immediate(engine))
        accepted: list[Accepted[Job] | SchedoError] = await engine.submit([JobSpec(_TASK)])
        for each in accepted:
            if not isinstance(each, SchedoError):
                await engine.wait(each.job.id, _WAIT_S)
    finally:
        await engine.stop()


class _Immediate:
    """A worker whose attempts complete at once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def start(self, lease: Lease) -> None:
        self._engine.report(AttemptResult(lease.key, Completed(b"null")))

    def stop(self, stop: StopRequest) -> None:
        """Nothing runs."""
