"""What other servers ask about the workers that poll this one."""

from __future__ import annotations

from schedo.cluster.client_request import ClientRequest
from schedo.cluster.hops import Purpose
from schedo.cluster.parts_of_gateways import PartsOfGateways
from schedo.cluster.polling_workers import PollingWorkers
from schedo.cluster.surplus import OwnSurplus
from schedo.cluster.unheard_workers import note_doubts
from schedo.cluster.unserved import say_what_is_served
from schedo.cluster.worker_reasons import explain_own_workers
from schedo.web.http import Response

QUESTIONS: frozenset[Purpose] = frozenset(("surplus", "recall", "why", "served", "lists"))


class Questions:
    """Responds to each of QUESTIONS."""

    def __init__(
        self, own_surplus: OwnSurplus, parts: PartsOfGateways, workers: PollingWorkers
    ) -> None:
        self._own_surplus, self._parts, self._workers = own_surplus, parts, workers

    async def respond(self, asked: ClientRequest) -> Response:
        """Return the response to a question."""
        assert asked.hop is not None
        match asked.hop.purpose:
            case "surplus":
                return await self._own_surplus.respond(asked)
            case "recall":
                return self._parts.recall(asked)
            case "why":
                return explain_own_workers(asked)
            case "served":
                return await say_what_is_served(asked)
            case _:
                return note_doubts(asked, self._workers)
