"""The claims about polls, results and offers; see contract.py."""

from __future__ import annotations

from tests.worker.contract_worker import (
    TOKEN,
    ContractWorker,
    begin,
    next_idle_poll,
    next_result,
    next_with_results,
)
from tests.worker.remote.server import LEASE, WorkServer, lease_of, lease_text


class PollClaims:
    """Polls and reports."""

    async def test_the_first_poll_describes_the_worker_and_the_next_one_waits(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        first = await server.next_poll()
        first.answer(heartbeat=7)
        second = await server.next_poll()

        assert (first.body["worker"], first.body["slots"]) == ("w1", 2)
        assert "work" in first.body["tasks"]
        assert first.body["session"]
        assert first.headers["authorization"] == f"Bearer {TOKEN}"
        assert [(each.body["running"], each.body["wait"]) for each in (first, second)] == [
            ([], 0),
            ([], 7),
        ]

    async def test_an_attempt_runs_while_the_next_poll_is_open(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (call,) = await begin(server, worker)

        poll = await server.next_poll()

        assert poll.body["running"] == [call.lease]

    async def test_a_result_is_reported_at_once_while_a_poll_is_open(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (call,) = await begin(server, worker)
        poll = await server.next_poll()

        worker.end(call, "complete", {"n": 2})
        report = await server.next_report()

        assert report.results == [{"lease": call.lease, "outcome": "completed", "result": {"n": 2}}]
        assert (report.body["max_leases"], report.body["wait"]) == (0, 0)
        assert not poll.gone.is_set()

    async def test_results_that_arrive_during_a_report_are_reported_together(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        first, second, third = await begin(server, worker, 3)
        poll = await server.next_poll()
        worker.end(first, "complete", 1)
        report = await server.next_report()
        worker.end(second, "complete", 2)
        await worker.has_called()  # the second has ended before the third
        worker.end(third, "complete", 3)
        await worker.has_called()

        report.answer()
        report = await server.next_report()

        assert [result["lease"] for result in report.results] == [second.lease, third.lease]
        assert not poll.gone.is_set()

    async def test_an_attempt_is_listed_until_its_result_is_confirmed(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (call,) = await begin(server, worker)
        poll = await server.next_poll()
        worker.end(call, "complete", 1)
        report = await server.next_report()

        poll.answer()
        poll = await server.next_poll()
        assert poll.body["running"] == [call.lease]

        report.answer()
        poll.answer(revoked=[call.lease])
        await next_idle_poll(server)

    async def test_a_lease_that_is_sent_twice_runs_once(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        await begin(server, worker)
        (await server.next_poll()).answer(leases=[lease_of(payload={}, lease=lease_text(1))])
        await server.next_poll()

        assert not await worker.has_called()

    async def test_a_stop_request_stops_the_attempt(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (call,) = await begin(server, worker)
        (await server.next_poll()).answer(stop=[{"lease": call.lease, "reason": "timeout"}])

        assert await worker.stopped(call) == "timeout"
        result = await next_result(server)

        assert (result["lease"], result["outcome"]) == (call.lease, "stopped")

    async def test_a_revoked_attempt_is_stopped_and_not_reported(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (call,) = await begin(server, worker)
        (await server.next_poll()).answer(revoked=[call.lease])

        await worker.stopped(call)
        poll = await server.next_poll()
        poll.answer()

        assert (await server.next_poll()).body["running"] == []
        assert server.is_silent


class ResultClaims:
    """How attempts end."""

    async def test_an_error_of_a_handler_fails_its_attempt(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (call,) = await begin(server, worker)
        await server.next_poll()

        worker.end(call, "fail", "a.png is no picture")
        result = (await server.next_report()).results[0]

        assert (result["outcome"], result["error"]["message"]) == ("failed", "a.png is no picture")
        assert result.get("retryable", True)

    async def test_a_result_tells_how_long_the_attempt_ran(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (call,) = await begin(server, worker)
        await server.next_poll()

        worker.end(call, "complete")
        (result,) = (await server.next_report()).body["results"]

        assert 0 <= result["ran"] < 60

    async def test_a_discarded_job_fails_without_a_retry(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (call,) = await begin(server, worker)
        await server.next_poll()

        worker.end(call, "discard", "it is too late")
        result = (await server.next_report()).results[0]

        assert (result["outcome"], result["retryable"]) == ("failed", False)
        assert result["error"]["message"] == "it is too late"

    async def test_a_snoozed_job_runs_again_after_the_delay(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (call,) = await begin(server, worker)
        await server.next_poll()

        worker.end(call, "snooze", 90)
        result = (await server.next_report()).results[0]

        assert (result["outcome"], float(result["delay"])) == ("snoozed", 90)

    async def test_an_attempt_of_an_unknown_task_fails_without_a_retry(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (await server.next_poll()).answer(leases=[lease_of("other")])

        result = await next_result(server)

        assert (result["outcome"], result["retryable"]) == ("failed", False)
        assert result["error"]["type"] == "unknown-task"

    async def test_a_result_that_the_server_refuses_becomes_a_failure(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        before, first, second = await begin(server, worker, 3)
        await server.next_poll()
        worker.end(before, "complete", 0)
        report = await server.next_report()
        worker.end(first, "complete", 1)
        await worker.has_called()  # the first has ended before the second
        worker.end(second, "complete", 2)
        await worker.has_called()
        report.answer()
        together = await server.next_report()
        assert len(together.results) == 2
        together.refuse(400, "bad-json", "a number does not fit into 64 bits")

        alone = await next_with_results(server, 1)
        assert [result["lease"] for result in alone.results] == [first.lease]
        alone.refuse(400, "bad-json", "a number does not fit into 64 bits")
        instead = await next_with_results(server, 1)
        instead.answer()
        other = await next_with_results(server, 1)

        (failed,) = instead.results
        assert (failed["lease"], failed["retryable"]) == (first.lease, False)
        assert failed["error"]["message"] == (
            "the server refused the result: a number does not fit into 64 bits"
        )
        assert other.results == [{"lease": second.lease, "outcome": "completed", "result": 2}]

    async def test_progress_of_one_interval_is_merged_into_one_report(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (call,) = await begin(server, worker)
        await server.next_poll()
        worker.progress(call, percent=10)
        worker.progress(call, percent=40, message="page\0 4")
        worker.progress(call, log="first")
        worker.progress(call, log="second")

        report = await server.next_report()

        assert report.body["progress"] == [
            {"lease": call.lease, "percent": 40, "log": "first\nsecond", "message": "page\ufffd 4"}
        ]
        assert "running" not in report.body

    async def test_progress_that_waits_for_the_server_is_merged(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (call,) = await begin(server, worker)
        await server.next_poll()
        worker.progress(call, percent=0)
        report = await server.next_report()
        for number in range(300):  # more than several intervals take
            worker.progress(call, percent=1 + number / 10)
            await worker.has_called()

        report.answer()

        assert len((await server.next_report()).body["progress"]) == 1

    async def test_a_result_takes_no_more_room_than_its_text(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (call,) = await begin(server, worker)
        await server.next_poll()

        worker.end(call, "complete", "<&>" * 5_000)
        report = await server.next_report()

        assert int(report.headers["content-length"]) < 20_000


class OfferClaims:
    """Offers."""

    async def test_an_offer_starts_when_its_acceptance_is_confirmed(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (await server.next_poll()).answer(leases=[lease_of(payload={}, offer=True)])

        poll = await server.next_poll()
        assert (poll.body["accept"], poll.body["running"], poll.body["wait"]) == (
            [LEASE],
            [LEASE],
            0,
        )
        assert not await worker.has_called()
        poll.answer()

        assert (await worker.called()).lease == LEASE
        assert (await server.next_poll()).body["running"] == [LEASE]

    async def test_a_revoked_offer_does_not_start(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        (await server.next_poll()).answer(leases=[lease_of(payload={}, offer=True)])
        (await server.next_poll()).answer(revoked=[LEASE])

        assert (await server.next_poll()).body["running"] == []
        assert not await worker.has_called()

    async def test_an_offer_beyond_the_slots_is_rejected(
        self, server: WorkServer, worker: ContractWorker
    ) -> None:
        first, second, third = map(lease_text, (1, 2, 3))
        (await server.next_poll()).answer(
            leases=[
                lease_of(payload={}, lease=first),
                *(lease_of(payload={}, lease=each, offer=True) for each in (second, third)),
            ]
        )

        poll = await server.next_poll()

        assert poll.body["accept"] == [second]
        assert poll.body["reject"] == [{"lease": third, "reason": "no free slot"}]
