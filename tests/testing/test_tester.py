"""Testers: the modes drain and inline, the clock that the test moves, and assert_enqueued."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from schedo import JobFailed
from schedo.errors import Invalid
from schedo.testing import AsyncTester, Tester
from tests.testing import shop
from tests.testing.shop import app, charge, count_items, hang, send_email, sign_up

START = datetime(2026, 3, 28, 8, 30, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _fresh_shop() -> None:
    shop.sent.clear()
    shop.threads.clear()


@pytest.fixture
def tester() -> Iterator[Tester]:
    with Tester(app, start=START) as tester:
        yield tester


@pytest.fixture
def inline() -> Iterator[Tester]:
    with Tester(app, mode="inline", start=START) as tester:
        yield tester


def test_a_job_is_kept_until_the_drain(tester: Tester) -> None:
    job = send_email.enqueue_sync("ada")

    assert (shop.sent, job.status_sync()["state"]) == ([], "queued")
    assert tester.drain() == {"completed": 1}
    assert (shop.sent, job.result_sync()) == (["hello to ada"], "ada")
    assert tester.drain() == {}


def test_a_drain_also_runs_the_jobs_that_its_jobs_enqueue(tester: Tester) -> None:
    sign_up.enqueue_sync("ada")

    assert tester.drain() == {"completed": 2}
    assert shop.sent == ["welcome to ada"]


def test_the_jobs_between_two_drains_are_kept(tester: Tester) -> None:
    tester.drain()

    send_email.enqueue_sync("ada")

    assert shop.sent == []


def test_inline_a_job_has_run_when_enqueue_returns(inline: Tester) -> None:
    job = send_email.enqueue_sync("ada")

    assert shop.sent == ["hello to ada"]
    assert job.status_sync()["state"] == "completed"


def test_inline_a_job_and_the_jobs_that_it_enqueues_have_run(inline: Tester) -> None:
    sign_up.enqueue_sync("ada")

    assert shop.sent == ["welcome to ada"]
    assert shop.threads[0] is not threading.current_thread()


def test_a_delay_ends_when_the_clock_is_moved(inline: Tester) -> None:
    sign_up.enqueue_sync("ada")
    inline.advance("71h")
    before = list(shop.sent)

    inline.advance("1h")

    assert "how is it going? to ada" not in before
    assert "how is it going? to ada" in shop.sent


def test_a_schedule_fires_at_each_of_its_instants(inline: Tester) -> None:
    inline.advance(to="2026-03-30T12:00:00Z")

    # 9 o'clock in Paris: the clocks are set forward on 29 March.
    assert shop.sent == [
        "report of 29 Mar 07:00",
        "report of 30 Mar 07:00",
    ]
    assert inline.now() == datetime(2026, 3, 30, 12, tzinfo=UTC)


def test_each_retry_comes_at_its_own_instant(inline: Tester) -> None:
    job = charge.enqueue_sync(3)
    inline.advance("19m")
    waiting = job.status_sync()

    inline.advance("1m")

    assert (waiting["state"], waiting["attempt"]) == ("retrying", 2)
    assert job.result_sync() == 3


def test_a_job_that_fails_shows_the_traceback_of_its_handler(inline: Tester) -> None:
    job = charge.enqueue_sync(9)
    inline.advance("1h")

    with pytest.raises(JobFailed, match="ConnectionError: the bank does not answer") as caught:
        job.result_sync()
    assert "raise ConnectionError" in caught.value.__notes__[0]


def test_a_failure_with_retries_left_counts_as_retrying(tester: Tester) -> None:
    send_email.enqueue_sync("nobody")

    assert tester.drain() == {"retrying": 1}


def test_a_timeout_ends_a_handler_when_the_clock_is_moved() -> None:
    with Tester(app, mode="inline", settle=0.01) as tester:
        job = hang.enqueue_sync()
        tester.advance("30s")

        with pytest.raises(JobFailed, match="timeout"):
            job.result_sync()


def test_a_result_that_only_the_test_can_bring_is_an_error(tester: Tester) -> None:
    job = send_email.options(delay="1h").enqueue_sync("ada")

    with pytest.raises(RuntimeError, match=r"is scheduled, due at .*: call drain\(\) or advance"):
        job.result_sync()


def test_the_clock_moves_only_forward_and_by_one_argument(tester: Tester) -> None:
    with pytest.raises(Invalid, match="/to: this instant has passed"):
        tester.advance(to="2026-01-01T00:00:00Z")
    with pytest.raises(Invalid, match="either a duration or to="):
        tester.advance()
    with pytest.raises(ValueError, match="'soon' is not a duration"):
        tester.advance("soon")


def test_a_wrong_mode_is_refused() -> None:
    with pytest.raises(Invalid, match="it must be drain or inline"):
        Tester(app, mode="eager")  # type: ignore[arg-type]


def test_two_testers_do_not_run_one_application(tester: Tester) -> None:
    with pytest.raises(RuntimeError, match="another tester runs it"), Tester(app):
        pass

    send_email.enqueue_sync("ada")
    assert tester.drain() == {"completed": 1}


def test_the_application_has_its_own_backend_again_after_the_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SCHEDO_URL", raising=False)
    with Tester(app):
        pass

    with pytest.raises(RuntimeError, match="no server to submit jobs to"):
        send_email.enqueue_sync("ada")


def test_an_enqueued_job_is_found_by_a_part_of_its_arguments(tester: Tester) -> None:
    at = datetime(2026, 4, 1, tzinfo=UTC)
    send_email.enqueue_sync("ada", "hi", at=at)

    (found,) = tester.assert_enqueued(send_email, to="ada", queue="mail", at=at)

    assert found["payload"]["subject"] == "hi"
    tester.assert_enqueued("send_email", count=1)
    tester.assert_enqueued(send_email, to="bob", count=0)


def test_arguments_named_count_and_queue_are_given_as_a_payload(tester: Tester) -> None:
    count_items.enqueue_sync(3, queue="a")

    tester.assert_enqueued(count_items, {"count": 3, "queue": "a"}, count=1)


def test_a_job_that_was_not_enqueued_is_explained(tester: Tester) -> None:
    send_email.enqueue_sync("bob")
    sign_up.enqueue_sync("cy")

    with pytest.raises(AssertionError) as caught:
        tester.assert_enqueued(send_email, to="ada")
    with pytest.raises(AssertionError, match="1 job of task send_email was enqueued, expected 2"):
        tester.assert_enqueued(send_email, count=2)

    assert str(caught.value).splitlines() == [
        'no job of task send_email with to="ada" was enqueued, expected at least 1',
        "the jobs of this test:",
        '  send_email {"to":"bob"} queue=mail queued  <- differs in to',
        '  sign_up {"to":"cy"} queue=default queued',
    ]


def test_an_argument_that_the_task_does_not_have_is_refused(tester: Tester) -> None:
    with pytest.raises(TypeError, match="'send_email' has no argument 'too'; it has to, subject"):
        tester.assert_enqueued(send_email, too="ada")


async def test_an_async_test_has_the_handlers_in_its_own_loop() -> None:
    async with AsyncTester(app, start=START) as tester:
        job = await send_email.enqueue("ada")
        kept = list(shop.sent)
        drained = await tester.drain()

        assert (kept, drained) == ([], {"completed": 1})
        assert await job.result() == "ada"
        await tester.assert_enqueued(send_email, to="ada", count=1)
        await tester.advance(to="2026-03-29T08:00:00Z")
        assert [job["task"] for job in await tester.jobs()] == ["send_email", "report"]
        assert tester.now() == datetime(2026, 3, 29, 8, tzinfo=UTC)


async def test_an_async_test_runs_jobs_inline() -> None:
    async with AsyncTester(app, mode="inline") as tester:
        await send_email.enqueue("ada")

        assert shop.sent == ["hello to ada"]
        assert await tester.settle() == 0
