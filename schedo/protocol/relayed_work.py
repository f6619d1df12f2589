"""The part of a worker's request that the server which it polls sends to one server of a cluster.

The first server adds what the worker itself does not know: which of its attempts are for which
server. No client can send these fields.
"""

from __future__ import annotations

from dataclasses import replace

from schedo.core.worker_messages import PollRequest
from schedo.protocol.leases import LeaseText, read_leases
from schedo.protocol.reading import Steps
from schedo.protocol.work import WorkRequest


class RelayedWorkRequest(WorkRequest, kw_only=True, omit_defaults=True):
    """A worker's request with only what concerns the jobs of one server."""

    elsewhere: list[LeaseText] | None = None  # what the worker runs for other servers
    relayed: bool | None = None  # the worker polls another server
    age_us: int | None = None  # since the first server got the request

    def to_poll(self) -> Steps[PollRequest]:
        """Return the request for the engine, in steps."""
        poll = yield from super().to_poll()
        elsewhere = yield from read_leases("/elsewhere", self.elsewhere or [])
        spec = replace(poll.spec, is_relayed=self.relayed or False)
        return poll._replace(elsewhere=frozenset(elsewhere), age_us=self.age_us or 0, spec=spec)
