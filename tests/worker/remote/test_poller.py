"""The conversation: what is asked, what is told, and what survives when a connection does not."""

from __future__ import annotations

import pytest

from schedo.core.leases import Completed, Stopped, StopReason
from schedo.errors import Conflict, Unauthorized
from tests.worker.remote.conftest import Hands, Talk, stopped
from tests.worker.remote.server import LEASE, WorkServer, lease_of, lease_text


async def begin(server: WorkServer, hands: Hands, *leases: str) -> None:
    """Give these leases to the worker, which then waits for more."""
    ask = await server.asked()
    ask.answer(leases=[lease_of(lease=lease) for lease in leases])


async def test_a_worker_says_who_it_is_and_then_waits(server: WorkServer, talk: Talk) -> None:
    first = await server.asked()
    first.answer(heartbeat=7)
    second = await server.asked()

    me = {
        "worker": "w1",
        "session": "s1",
        "slots": 2,
        "running": [],
        "max_leases": 2,
        "offers": True,
    }
    assert (first.body, second.body) == ({**me, "wait": 0.0}, {**me, "wait": 7.0})


async def test_nothing_is_told_to_a_server_that_has_not_heard_what_runs(
    server: WorkServer, talk: Talk, hands: Hands
) -> None:
    await begin(server, hands, LEASE)
    call = await hands.called()
    (await server.asked()).drop()
    ask = await server.asked()
    hands.end(call, Completed())
    ask.answer()

    ask = await server.asked()

    assert (ask.body["running"], len(ask.results)) == ([], 1)
    assert server.is_silent


async def test_an_attempt_runs_while_the_next_request_waits(
    server: WorkServer, talk: Talk, hands: Hands
) -> None:
    await begin(server, hands, LEASE)

    call = await hands.called()
    ask = await server.asked()

    assert call.lease.key == (33, 1, 7)
    assert call.lease.scheduled_for == 1_795_172_645_000_250
    assert ask.body["running"] == [LEASE]


async def test_a_result_is_told_at_once_while_a_request_waits(
    server: WorkServer, talk: Talk, hands: Hands
) -> None:
    await begin(server, hands, LEASE)
    call = await hands.called()
    ask = await server.asked()

    hands.end(call, Completed(b'{"n":2}'))
    tell = await server.told()

    assert tell.results == [{"lease": LEASE, "outcome": "completed", "result": {"n": 2}}]
    assert (tell.body["max_leases"], tell.body["wait"]) == (0, 0)
    assert not ask.gone.is_set()


async def test_what_ends_while_results_are_on_their_way_is_told_together(
    server: WorkServer, talk: Talk, hands: Hands
) -> None:
    first, second, third = map(lease_text, (1, 2, 3))
    await begin(server, hands, first, second, third)
    calls = [await hands.called() for _ in range(3)]
    ask = await server.asked()
    hands.end(calls[0], Completed())
    tell = await server.told()
    hands.end(calls[1], Completed())
    hands.end(calls[2], Completed())

    tell.answer()
    tell = await server.told()

    assert [result["lease"] for result in tell.results] == [second, third]
    assert not ask.gone.is_set()


async def test_a_result_that_comes_at_once_goes_with_the_next_request(
    server: WorkServer, talk: Talk, hands: Hands
) -> None:
    hands.result = b"1"
    await begin(server, hands, LEASE)

    ask = await server.asked()

    assert (len(ask.results), ask.body["running"]) == (1, [])
    assert server.is_silent


async def test_results_of_a_full_worker_go_with_the_next_request(
    server: WorkServer, talk: Talk, hands: Hands
) -> None:
    hands.result = b"1"
    await begin(server, hands, lease_text(1), lease_text(2))

    ask = await server.asked()

    assert len(ask.results) == 2
    assert ask.body["running"] == []
    assert server.is_silent


async def test_an_attempt_counts_as_running_until_its_result_is_confirmed(
    server: WorkServer, talk: Talk, hands: Hands
) -> None:
    await begin(server, hands, LEASE)
    call = await hands.called()
    ask = await server.asked()
    hands.end(call, Completed())
    tell = await server.told()

    ask.answer()
    ask = await server.asked()
    assert ask.body["running"] == [LEASE]

    tell.answer()
    ask.answer(revoked=[LEASE])
    ask = await server.asked()
    assert ask.body["running"] == []


async def test_a_worker_keeps_its_attempts_over_a_reconnect(
    server: WorkServer, talk: Talk, hands: Hands
) -> None:
    await begin(server, hands, LEASE)
    call = await hands.called()
    (await server.asked()).drop()

    ask = await server.asked()

    assert (ask.body["running"], ask.body["wait"]) == ([LEASE], 0.0)
    assert call.stop.reason is None


async def test_a_result_that_may_not_have_arrived_is_told_again(
    server: WorkServer, talk: Talk, hands: Hands
) -> None:
    await begin(server, hands, LEASE)
    call = await hands.called()
    await server.asked()
    hands.end(call, Completed())
    first = await server.told()

    first.drop()
    again = await server.asked()

    assert (again.results, again.body["running"]) == (first.results, [])


async def test_a_result_waits_for_a_server_that_is_away(
    server: WorkServer, talk: Talk, hands: Hands
) -> None:
    hands.result = b"1"
    await begin(server, hands, lease_text(1), lease_text(2))
    (await server.asked()).drop()

    ask = await server.asked()

    assert len(ask.results) == 2


async def test_a_stop_reaches_the_attempt(server: WorkServer, talk: Talk, hands: Hands) -> None:
    await begin(server, hands, LEASE)
    call = await hands.called()
    (await server.asked()).answer(stop=[{"lease": LEASE, "reason": "timeout"}])

    assert await stopped(call) is StopReason.TIMEOUT
    await server.asked()
    hands.end(call, Stopped())
    assert (await server.told()).results == [{"lease": LEASE, "outcome": "stopped"}]


async def test_what_is_disowned_is_stopped_and_not_reported(
    server: WorkServer, talk: Talk, hands: Hands
) -> None:
    await begin(server, hands, LEASE)
    call = await hands.called()
    (await server.asked()).answer(revoked=[LEASE])

    assert await stopped(call) is StopReason.CANCEL
    hands.end(call, Stopped())
    ask = await server.asked()
    ask.answer()

    assert (await server.asked()).body["running"] == []
    assert server.is_silent


async def test_a_lease_given_twice_runs_once(server: WorkServer, talk: Talk, hands: Hands) -> None:
    await begin(server, hands, LEASE)
    await begin(server, hands, LEASE)
    await server.asked()

    assert hands.calls.qsize() == 1


async def test_a_busy_server_is_asked_again(server: WorkServer, talk: Talk) -> None:
    (await server.asked()).refuse(503, "unavailable", "it is draining", retry_after="0")
    (await server.asked()).refuse(429, "overloaded", "too much", retry_after="0")

    assert (await server.asked()).body["worker"] == "w1"


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"leases": 7}', b"\xff"], ids=str)
async def test_an_answer_that_is_none_is_no_end(
    server: WorkServer, talk: Talk, body: bytes
) -> None:
    (await server.asked()).say(200, body)

    assert (await server.asked()).body["worker"] == "w1"


async def test_what_a_newer_server_says_is_passed_over(
    server: WorkServer, talk: Talk, hands: Hands
) -> None:
    (await server.asked()).answer(
        protocol=2, colour="red", leases=[lease_of(trigger="moon", flavour=[1], payload={"a": 1})]
    )

    call = await hands.called()

    assert (call.lease.trigger, call.lease.payload) == ("submit", b'{"a": 1}')


async def test_a_lease_that_cannot_be_read_harms_no_other(
    server: WorkServer, talk: Talk, hands: Hands
) -> None:
    bad = lease_of(lease="no lease")
    (await server.asked()).answer(leases=[bad, lease_of(scheduled_for="x"), lease_of()])

    assert (await hands.called()).lease.key == (33, 1, 7)


async def test_a_task_that_is_not_there_fails_for_good(server: WorkServer, talk: Talk) -> None:
    (await server.asked()).answer(leases=[lease_of("other")])

    (result,) = (await server.asked()).results

    assert (result["outcome"], result["retryable"]) == ("failed", False)
    assert result["error"]["type"] == "unknown-task"


async def test_a_worker_that_is_refused_from_the_start_ends(server: WorkServer, talk: Talk) -> None:
    (await server.asked()).refuse(401, "unauthorized", "the token is wrong")

    with pytest.raises(Unauthorized, match="the token is wrong"):
        await talk.end()


async def test_a_worker_that_has_worked_is_patient_with_a_refusal(
    server: WorkServer, talk: Talk
) -> None:
    (await server.asked()).answer()
    (await server.asked()).refuse(401, "unauthorized", "the token is wrong")

    assert (await server.asked()).body["worker"] == "w1"


async def test_a_worker_whose_name_another_has_taken_ends(server: WorkServer, talk: Talk) -> None:
    (await server.asked()).answer()
    (await server.asked()).refuse(409, "worker-replaced", "another process is worker w1 now")

    with pytest.raises(Conflict, match="another process"):
        await talk.end()


async def test_a_result_the_server_cannot_take_becomes_a_failure(
    server: WorkServer, talk: Talk, hands: Hands
) -> None:
    first, second = lease_text(1), lease_text(2)
    await begin(server, hands, first, second)
    calls = [await hands.called() for _ in range(2)]
    await server.asked()
    hands.end(calls[0], Completed(b"18446744073709551616"))
    hands.end(calls[1], Completed(b"2"))
    (await server.told()).refuse(400, "bad-json", "a number does not fit into 64 bits")

    alone = await server.told()
    assert [result["lease"] for result in alone.results] == [first]
    alone.refuse(400, "bad-json", "a number does not fit into 64 bits")
    instead = await server.told()
    instead.answer()
    other = await server.told()

    (failed,) = instead.results
    assert (failed["lease"], failed["retryable"]) == (first, False)
    assert failed["error"]["message"] == (
        "the server could not take the result: a number does not fit into 64 bits"
    )
    assert other.results == [{"lease": second, "outcome": "completed", "result": 2}]
