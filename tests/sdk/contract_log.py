"""What a worker of an SDK writes into its log."""

from __future__ import annotations

from tests.sdk.process_worker import ProcessWorker
from tests.worker.contract_worker import answer_until_the_end
from tests.worker.remote.server import WorkServer


class LogClaims:
    """A test module gives the fixtures `server` and `worker`."""

    async def test_the_log_tells_once_that_the_server_is_away_and_once_that_it_is_back(
        self, server: WorkServer, worker: ProcessWorker
    ) -> None:
        (await server.next_poll()).answer()
        for _ in range(3):
            (await server.next_poll()).refuse(503, "unavailable", "it starts", retry_after="0")
        (await server.next_poll()).answer()
        worker.stop()
        await answer_until_the_end(server, worker)

        away, back = await worker.log()

        assert away.endswith("w1: it starts; retrying")
        assert back.endswith("w1: the server responds again")
