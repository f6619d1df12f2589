"""What a server does before it has its store: afterwards only the store is missing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from schedo.server.process import spare_collector
from schedo.server.scratch import run_scratch_server

if TYPE_CHECKING:
    from schedo.server.server import Server


async def warm_up(server: Server) -> float:
    """Do everything that needs no store; return how long it took, in milliseconds."""
    began_at = time.monotonic()
    await server.workers.prepare()
    await run_scratch_server()
    await server.store.prepare()
    spare_collector()
    return (time.monotonic() - began_at) * 1_000
