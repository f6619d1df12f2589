"""The claims about lost connections, refusals and the end of a worker; see contract.py."""

from __future__ import annotations

import asyncio

import pytest

from tests.worker.contract_worker import (
    ContractWorker,
    answer_until_the_end,
    begin,
    next_result,
    next_with_results,
)
from tests.worker.remote.server import LEASE, WorkServer, lease_of


class ConnectionClaims:
    """Lost connections, busy servers and refusals."""

    async def test_a_worker_keeps_its_attempts_across_a_reconnect(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (call,) = await begin(server, worker)
        (await server.next_poll()).drop()

        poll = await server.next_poll()

        assert (poll.body["running"], poll.body["wait"]) == ([call.lease], 0)

    async def test_no_report_is_sent_before_a_poll_got_its_response(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (call,) = await begin(server, worker)
        (await server.next_poll()).drop()
        poll = await server.next_poll()
        worker.end(call, "complete", 1)
        await worker.has_called()  # it has ended
        assert server.is_silent

        poll.answer()

        assert [each["lease"] for each in (await next_with_results(server, 1)).results] == [
            call.lease
        ]

    async def test_an_unconfirmed_result_is_sent_again(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (call,) = await begin(server, worker)
        await server.next_poll()
        worker.end(call, "complete", 1)
        first = await server.next_report()

        first.drop()
        again = await server.next_poll()

        assert (again.results, again.body["running"]) == (first.results, [])

    async def test_a_poll_without_a_response_is_given_up_before_the_session_is_over(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (await server.next_poll()).answer(heartbeat=0.1)
        silent = await server.next_poll()

        async with asyncio.timeout(20):  # of the 30 s of the session
            await silent.gone.wait()

        assert (await server.next_poll()).body["wait"] == 0

    async def test_an_overloaded_server_is_polled_again(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (await server.next_poll()).refuse(503, "unavailable", "it is draining", retry_after="0")
        (await server.next_poll()).refuse(429, "overloaded", "too much", retry_after="0")

        assert (await server.next_poll()).body["worker"] == "w1"

    @pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"leases": 7}', b"\xff"], ids=str)
    async def test_a_malformed_response_does_not_end_the_worker(
        self, server: WorkServer, worker: ContractWorker, body: bytes
    ) -> None:
        (await server.next_poll()).respond(200, body)

        assert (await server.next_poll()).body["worker"] == "w1"

    async def test_unknown_fields_of_a_newer_server_are_ignored(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (await server.next_poll()).answer(
            protocol=2, colour="red", leases=[lease_of(trigger="moon", flavour=[1], payload={})]
        )

        assert (await worker.called()).lease == LEASE

    async def test_an_unreadable_lease_does_not_affect_the_others(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        bad = lease_of(lease="no lease")
        leases = [bad, lease_of(scheduled_for="x"), lease_of(payload={})]
        (await server.next_poll()).answer(leases=leases)

        assert (await worker.called()).lease == LEASE

    async def test_a_worker_ends_if_its_first_request_is_refused(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (await server.next_poll()).refuse(401, "unauthorized", "the token is wrong")

        assert "the token is wrong" in await worker.ended()

    async def test_a_worker_retries_a_later_refusal(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (await server.next_poll()).answer()
        (await server.next_poll()).refuse(401, "unauthorized", "the token is wrong")

        assert (await server.next_poll()).body["worker"] == "w1"

    async def test_a_worker_that_is_replaced_ends_and_stops_its_attempts(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (call,) = await begin(server, worker)
        (await server.next_poll()).refuse(409, "worker-replaced", "another process is w1 now")

        await worker.stopped(call)
        assert "another process is w1 now" in await worker.ended()


class DrainClaims:
    """The end of a worker."""

    async def test_a_stopped_worker_lets_its_attempts_end(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (call,) = await begin(server, worker)
        await server.next_poll()

        worker.stop()
        poll = await server.next_poll()
        worker.end(call, "complete", "done")
        poll.answer()

        assert (poll.body["draining"], poll.body["running"]) == (True, [call.lease])
        results = await answer_until_the_end(server, worker)
        assert results == [{"lease": call.lease, "outcome": "completed", "result": "done"}]

    async def test_a_draining_worker_stops_polling_and_releases_late_leases(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        await begin(server, worker)
        waiting = await server.next_poll()

        worker.stop()
        poll = await server.next_poll()
        await waiting.gone.wait()
        poll.answer(leases=[lease_of(payload={})])

        assert (poll.body["draining"], poll.body["max_leases"]) == (True, 0)
        assert await next_result(server) == {"lease": LEASE, "outcome": "released"}
        assert not await worker.has_called()

    async def test_a_draining_worker_ends_when_its_last_attempt_is_revoked(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (call,) = await begin(server, worker)
        await server.next_poll()

        worker.stop()
        (await server.next_poll()).answer(revoked=[call.lease])

        assert await answer_until_the_end(server, worker) == []

    async def test_stop_now_gives_the_attempts_back(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (call,) = await begin(server, worker)

        worker.stop()
        worker.stop_now()

        results = await answer_until_the_end(server, worker)
        ((lease, outcome),) = {(result["lease"], result["outcome"]) for result in results}
        # Both give the job to another worker at once: the server has sent no stop.
        assert (lease, outcome in ("stopped", "released")) == (call.lease, True)

    async def test_a_worker_that_the_server_drains_ends(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (await server.next_poll()).answer(leases=[lease_of(payload={})], drain=True)
        call = await worker.called()
        poll = await server.next_poll()
        assert poll.body["draining"] is True
        worker.end(call, "complete", 1)
        poll.answer(drain=True)

        results = await answer_until_the_end(server, worker)

        assert [result["outcome"] for result in results] == ["completed"]

    async def test_a_worker_that_cannot_report_its_last_results_ends_and_says_so(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        await begin(server, worker)
        await server.next_poll()

        worker.stop()
        worker.stop_now()  # from now on no request gets a response

        assert "could not report 1 result" in await worker.ended()

    async def test_a_worker_that_ends_polls_a_busy_server_no_sooner_than_it_asks(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (await server.next_poll()).answer()
        await server.next_poll()

        worker.stop()
        leaving = await server.next_poll()
        leaving.refuse(503, "unavailable", "it is starting", retry_after="60")
        for _ in range(20):
            await worker.has_called()  # meanwhile it could have sent many

        assert server.is_silent

    async def test_a_worker_ends_though_the_server_was_busy_at_its_last_report(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (call,) = await begin(server, worker)
        await server.next_poll()
        worker.end(call, "complete", 1)
        report = await server.next_report()
        report.refuse(503, "unavailable", "too much", retry_after="60")

        worker.stop()

        results = await answer_until_the_end(server, worker)
        assert [result["result"] for result in results] == [1]

    async def test_an_offer_that_is_confirmed_while_its_worker_ends_is_given_back(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (await server.next_poll()).answer(leases=[lease_of(payload={}, offer=True)])
        await server.next_poll()

        worker.stop()
        poll = await server.next_poll()
        poll.answer()

        assert poll.body["accept"] == [LEASE]
        results = await answer_until_the_end(server, worker)
        assert results == [{"lease": LEASE, "outcome": "released"}]
        assert not await worker.has_called()
