"""Polls and reports of the poller, also across lost connections."""

from __future__ import annotations

import pytest

from schedo.core.leases import Completed, Stopped, StopReason
from schedo.errors import Conflict, Unauthorized
from tests.worker.remote.conftest import ManualRunner, RunningPoller, stopped
from tests.worker.remote.server import LEASE, WorkServer, lease_of, lease_text


async def begin(server: WorkServer, runner: ManualRunner, *leases: str) -> None:
    """Give these leases to the worker and return its next poll."""
    poll = await server.next_poll()
    poll.answer(leases=[lease_of(lease=lease) for lease in leases])


async def test_the_first_poll_describes_the_worker_and_the_next_one_waits(
    server: WorkServer, running: RunningPoller
) -> None:
    first = await server.next_poll()
    first.answer(heartbeat=7)
    second = await server.next_poll()

    me = {
        "worker": "w1",
        "session": "s1",
        "slots": 2,
        "running": [],
        "max_leases": 2,
        "offers": True,
    }
    assert (first.body, second.body) == ({**me, "wait": 0.0}, {**me, "wait": 7.0})


async def test_no_report_is_sent_before_a_poll_got_its_response(
    server: WorkServer, running: RunningPoller, runner: ManualRunner
) -> None:
    await begin(server, runner, LEASE)
    call = await runner.called()
    (await server.next_poll()).drop()
    poll = await server.next_poll()
    runner.end(call, Completed())
    poll.answer()

    poll = await server.next_poll()

    assert (poll.body["running"], len(poll.results)) == ([], 1)
    assert server.is_silent


async def test_an_attempt_runs_while_the_next_poll_is_open(
    server: WorkServer, running: RunningPoller, runner: ManualRunner
) -> None:
    await begin(server, runner, LEASE)

    call = await runner.called()
    poll = await server.next_poll()

    assert call.lease.key == (33, 1, 7)
    assert call.lease.scheduled_for == 1_795_172_645_000_250
    assert poll.body["running"] == [LEASE]


async def test_a_result_is_reported_at_once_while_a_poll_is_open(
    server: WorkServer, running: RunningPoller, runner: ManualRunner
) -> None:
    await begin(server, runner, LEASE)
    call = await runner.called()
    poll = await server.next_poll()

    runner.end(call, Completed(b'{"n":2}'))
    report = await server.next_report()

    assert report.results == [{"lease": LEASE, "outcome": "completed", "result": {"n": 2}}]
    assert (report.body["max_leases"], report.body["wait"]) == (0, 0)
    assert not poll.gone.is_set()


async def test_results_that_arrive_during_a_report_are_reported_together(
    server: WorkServer, running: RunningPoller, runner: ManualRunner
) -> None:
    first, second, third = map(lease_text, (1, 2, 3))
    await begin(server, runner, first, second, third)
    calls = [await runner.called() for _ in range(3)]
    poll = await server.next_poll()
    runner.end(calls[0], Completed())
    report = await server.next_report()
    runner.end(calls[1], Completed())
    runner.end(calls[2], Completed())

    report.answer()
    report = await server.next_report()

    assert [result["lease"] for result in report.results] == [second, third]
    assert not poll.gone.is_set()


async def test_an_immediate_result_is_sent_with_the_next_poll(
    server: WorkServer, running: RunningPoller, runner: ManualRunner
) -> None:
    runner.result = b"1"
    await begin(server, runner, LEASE)

    poll = await server.next_poll()

    assert (len(poll.results), poll.body["running"]) == (1, [])
    assert server.is_silent


async def test_results_of_a_full_worker_are_sent_with_the_next_poll(
    server: WorkServer, running: RunningPoller, runner: ManualRunner
) -> None:
    runner.result = b"1"
    await begin(server, runner, lease_text(1), lease_text(2))

    poll = await server.next_poll()

    assert len(poll.results) == 2
    assert poll.body["running"] == []
    assert server.is_silent


async def test_an_attempt_is_listed_until_its_result_is_confirmed(
    server: WorkServer, running: RunningPoller, runner: ManualRunner
) -> None:
    await begin(server, runner, LEASE)
    call = await runner.called()
    poll = await server.next_poll()
    runner.end(call, Completed())
    report = await server.next_report()

    poll.answer()
    poll = await server.next_poll()
    assert poll.body["running"] == [LEASE]

    report.answer()
    poll.answer(revoked=[LEASE])
    poll = await server.next_poll()
    assert poll.body["running"] == []


async def test_a_worker_keeps_its_attempts_across_a_reconnect(
    server: WorkServer, running: RunningPoller, runner: ManualRunner
) -> None:
    await begin(server, runner, LEASE)
    call = await runner.called()
    (await server.next_poll()).drop()

    poll = await server.next_poll()

    assert (poll.body["running"], poll.body["wait"]) == ([LEASE], 0.0)
    assert call.stop.reason is None


async def test_an_unconfirmed_result_is_sent_again(
    server: WorkServer, running: RunningPoller, runner: ManualRunner
) -> None:
    await begin(server, runner, LEASE)
    call = await runner.called()
    await server.next_poll()
    runner.end(call, Completed())
    first = await server.next_report()

    first.drop()
    again = await server.next_poll()

    assert (again.results, again.body["running"]) == (first.results, [])


async def test_a_result_waits_for_an_unreachable_server(
    server: WorkServer, running: RunningPoller, runner: ManualRunner
) -> None:
    runner.result = b"1"
    await begin(server, runner, lease_text(1), lease_text(2))
    (await server.next_poll()).drop()

    poll = await server.next_poll()

    assert len(poll.results) == 2


async def test_a_stop_request_stops_the_attempt(
    server: WorkServer, running: RunningPoller, runner: ManualRunner
) -> None:
    await begin(server, runner, LEASE)
    call = await runner.called()
    (await server.next_poll()).answer(stop=[{"lease": LEASE, "reason": "timeout"}])

    assert await stopped(call) is StopReason.TIMEOUT
    await server.next_poll()
    runner.end(call, Stopped())
    assert (await server.next_report()).results == [{"lease": LEASE, "outcome": "stopped"}]


async def test_a_revoked_attempt_is_stopped_and_not_reported(
    server: WorkServer, running: RunningPoller, runner: ManualRunner
) -> None:
    await begin(server, runner, LEASE)
    call = await runner.called()
    (await server.next_poll()).answer(revoked=[LEASE])

    assert await stopped(call) is StopReason.CANCEL
    runner.end(call, Stopped())
    poll = await server.next_poll()
    poll.answer()

    assert (await server.next_poll()).body["running"] == []
    assert server.is_silent


async def test_a_lease_that_is_sent_twice_runs_once(
    server: WorkServer, running: RunningPoller, runner: ManualRunner
) -> None:
    await begin(server, runner, LEASE)
    await begin(server, runner, LEASE)
    await server.next_poll()

    assert runner.calls.qsize() == 1


async def test_an_overloaded_server_is_polled_again(
    server: WorkServer, running: RunningPoller
) -> None:
    (await server.next_poll()).refuse(503, "unavailable", "it is draining", retry_after="0")
    (await server.next_poll()).refuse(429, "overloaded", "too much", retry_after="0")

    assert (await server.next_poll()).body["worker"] == "w1"


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"leases": 7}', b"\xff"], ids=str)
async def test_a_malformed_response_does_not_end_the_worker(
    server: WorkServer, running: RunningPoller, body: bytes
) -> None:
    (await server.next_poll()).respond(200, body)

    assert (await server.next_poll()).body["worker"] == "w1"


async def test_unknown_fields_of_a_newer_server_are_ignored(
    server: WorkServer, running: RunningPoller, runner: ManualRunner
) -> None:
    (await server.next_poll()).answer(
        protocol=2, colour="red", leases=[lease_of(trigger="moon", flavour=[1], payload={"a": 1})]
    )

    call = await runner.called()

    assert (call.lease.trigger, call.lease.payload) == ("submit", b'{"a": 1}')


async def test_an_unreadable_lease_does_not_affect_the_others(
    server: WorkServer, running: RunningPoller, runner: ManualRunner
) -> None:
    bad = lease_of(lease="no lease")
    (await server.next_poll()).answer(leases=[bad, lease_of(scheduled_for="x"), lease_of()])

    assert (await runner.called()).lease.key == (33, 1, 7)


async def test_an_attempt_of_an_unknown_task_fails_without_a_retry(
    server: WorkServer, running: RunningPoller
) -> None:
    (await server.next_poll()).answer(leases=[lease_of("other")])

    (result,) = (await server.next_poll()).results

    assert (result["outcome"], result["retryable"]) == ("failed", False)
    assert result["error"]["type"] == "unknown-task"


async def test_a_worker_ends_if_its_first_request_is_refused(
    server: WorkServer, running: RunningPoller
) -> None:
    (await server.next_poll()).refuse(401, "unauthorized", "the token is wrong")

    with pytest.raises(Unauthorized, match="the token is wrong"):
        await running.end()


async def test_a_worker_retries_a_later_refusal(server: WorkServer, running: RunningPoller) -> None:
    (await server.next_poll()).answer()
    (await server.next_poll()).refuse(401, "unauthorized", "the token is wrong")

    assert (await server.next_poll()).body["worker"] == "w1"


async def test_a_worker_that_is_replaced_ends(server: WorkServer, running: RunningPoller) -> None:
    (await server.next_poll()).answer()
    (await server.next_poll()).refuse(409, "worker-replaced", "another process is worker w1 now")

    with pytest.raises(Conflict, match="another process"):
        await running.end()


async def test_a_result_that_the_server_refuses_becomes_a_failure(
    server: WorkServer, running: RunningPoller, runner: ManualRunner
) -> None:
    first, second = lease_text(1), lease_text(2)
    await begin(server, runner, first, second)
    calls = [await runner.called() for _ in range(2)]
    await server.next_poll()
    runner.end(calls[0], Completed(b"18446744073709551616"))
    runner.end(calls[1], Completed(b"2"))
    (await server.next_report()).refuse(400, "bad-json", "a number does not fit into 64 bits")

    alone = await server.next_report()
    assert [result["lease"] for result in alone.results] == [first]
    alone.refuse(400, "bad-json", "a number does not fit into 64 bits")
    instead = await server.next_report()
    instead.answer()
    other = await server.next_report()

    (failed,) = instead.results
    assert (failed["lease"], failed["retryable"]) == (first, False)
    assert failed["error"]["message"] == (
        "the server refused the result: a number does not fit into 64 bits"
    )
    assert other.results == [{"lease": second, "outcome": "completed", "result": 2}]
