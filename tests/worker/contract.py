"""What every worker does, in whatever language: the claims of docs/protocol.md.

A test module derives a class from WorkerContract and gives it a fixture `worker`: a worker named
"w1" with two slots and the task "work", connected to the fixture `server`, and with a token. Its
handler waits until the test ends it.
"""

from __future__ import annotations

from tests.worker.contract_connections import ConnectionClaims, DrainClaims
from tests.worker.contract_work import OfferClaims, PollClaims, ResultClaims


class WorkerContract(PollClaims, ResultClaims, OfferClaims, ConnectionClaims, DrainClaims):
    """Every claim."""
