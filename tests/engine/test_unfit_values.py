"""A value that no column can store fails its job or request, never the server."""

import asyncio
from pathlib import Path

import pytest

from schedo.core import results
from schedo.core.commands import Flush
from schedo.core.leases import AttemptResult, CapturedOutput, Completed, Failed, Outcome, Snoozed
from schedo.core.limits import MINUTE
from schedo.core.model import Failure, Job
from schedo.core.scheduler import Scheduler
from schedo.core.states import State
from schedo.engine import loop
from schedo.errors import Invalid, SchedoError, StoreError, StoreRefused, Unavailable
from tests.engine.world import Answers, World, recovered, running, spec

TOO_LARGE = 2**63
NO_TEXT = "\ud800"

REPORTS: dict[str, tuple[Outcome, tuple[CapturedOutput, ...]]] = {
    "an output that is text": (Completed(b"1"), (CapturedOutput("body", "text", b"", 4),)),  # type: ignore[arg-type]
    "a stream without a name": (Completed(b"1"), (CapturedOutput(NO_TEXT, b"", b"", 0),)),  # type: ignore[arg-type]
    "a result that is text": (Completed("text"), ()),  # type: ignore[arg-type]
    "a snooze of a fraction": (Snoozed(0.5), ()),  # type: ignore[arg-type]
    "an error that is a number": (Failed(Failure("x", 5)), ()),  # type: ignore[arg-type]
    "an exit code that is text": (Failed(Failure("x", "y", "3")), ()),  # type: ignore[arg-type]
}
BOUNDED: dict[str, tuple[Outcome, tuple[CapturedOutput, ...], State]] = {
    "an output total of 2^63": (
        Completed(b"1"),
        (CapturedOutput("stdout", b"", b"", TOO_LARGE),),
        State.COMPLETED,
    ),
    "an output total of 2^64": (
        Completed(b"1"),
        (CapturedOutput("stdout", b"", b"", 2**64),),
        State.COMPLETED,
    ),
    "an output total below 0": (
        Completed(b"1"),
        (CapturedOutput("stdout", b"", b"", -1),),
        State.COMPLETED,
    ),
    "a snooze of 2^63": (Snoozed(TOO_LARGE), (), State.SCHEDULED),
    "a snooze of 2^64": (Snoozed(2**64), (), State.SCHEDULED),
    "a retry in 2^63": (Failed(Failure("x", "y"), retry_in_us=TOO_LARGE), (), State.RETRYING),
    "an error that is no UTF-8": (Failed(Failure("x", NO_TEXT)), (), State.RETRYING),
}


@pytest.mark.parametrize("name", REPORTS)
async def test_a_result_with_a_value_that_cannot_be_stored_fails_only_its_own_job(
    path: Path, name: str
) -> None:
    outcome, output = REPORTS[name]
    async with running(path) as world:
        job, other = await world.submit(), await world.submit()
        world.engine.report(AttemptResult(world.worker.leases.pop(0).key, outcome, output))
        world.worker.end()

        ended, beside = await world.engine.get(job.id), await world.engine.wait(other.id, 5)
        ended = await world.engine.wait(job.id, 5)

        assert (ended.state, ended.attempt) == (State.FAILED, 1)
        assert ended.failure is not None
        assert ended.failure.type == "unfit-report"
        assert beside.state is State.COMPLETED
        assert world.store.failures == 0
        assert world.engine.health().ready


@pytest.mark.parametrize("name", BOUNDED)
async def test_a_number_or_text_out_of_bounds_is_clamped(path: Path, name: str) -> None:
    outcome, output, state = BOUNDED[name]
    async with running(path) as world:
        job, other = await world.submit(), await world.submit()
        world.engine.report(AttemptResult(world.worker.leases.pop(0).key, outcome, output))
        world.worker.end()
        await world.engine.wait(other.id, 5)

        assert (await world.engine.get(job.id)).state is state
        assert world.store.failures == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"run_at": TOO_LARGE},
        {"delay_us": TOO_LARGE},
        {"expires_at": TOO_LARGE},
        {"expires_in_us": TOO_LARGE},
        {"priority": TOO_LARGE},
        {"priority": -(2**70)},
    ],
    ids=str,
)
async def test_a_spec_with_a_number_out_of_bounds_is_refused_alone(
    path: Path, fields: dict[str, int]
) -> None:
    async with running(path) as world:
        answers: Answers = await world.engine.submit([spec(), spec(**fields), spec()])

        assert [isinstance(answer, Invalid) for answer in answers] == [False, True, False]
        assert world.engine.health().ready


async def test_a_row_that_the_store_refuses_fails_its_job(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "fit_report", lambda report: report)  # as if a check was forgotten
    async with running(path) as world:
        job, other = await world.submit(), await world.submit()
        output = (CapturedOutput("stdout", b"", b"", TOO_LARGE),)
        world.engine.report(AttemptResult(world.worker.leases.pop(0).key, Completed(b"1"), output))
        world.worker.end()

        ended, beside = await ends(world, job.id), await ends(world, other.id)

        assert ended is State.FAILED
        assert beside is State.COMPLETED
        assert (await world.engine.get(other.id)).attempt == 1


async def test_a_text_that_the_store_refuses_fails_its_submit(path: Path) -> None:
    async with running(path) as world:
        with pytest.raises(StoreRefused):
            await world.engine.submit([spec(task=NO_TEXT)])

        assert await ends(world, (await submitted(world)).id) is State.COMPLETED


async def submitted(world: World) -> Job:
    while True:
        try:
            return await world.submit()
        except (Unavailable, StoreRefused):
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.01)


async def ends(world: World, job_id: int) -> State:
    while True:
        try:
            while world.worker.leases:
                world.worker.end()
            job = await world.engine.wait(job_id, 0.1)
            if job.is_final:
                return job.state
        except SchedoError:  # it recovers
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.01)


def raise_bug(reply: None) -> None:
    raise ZeroDivisionError


async def test_the_engine_recovers_from_a_turn_that_breaks_once(path: Path) -> None:
    async with running(path) as world:
        world.engine._loop.enqueue(Flush(), raise_bug)

        assert await ends(world, (await submitted(world)).id) is State.COMPLETED
        assert not world.fatal


async def test_a_turn_that_breaks_repeatedly_ends_the_server(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(path) as world:

        def fail(scheduler: Scheduler, now: int, /, **rest: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(Scheduler, "tick", fail)
        world.engine._loop.wake()

        async with asyncio.timeout(10):
            while not world.fatal:
                await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.01)
        assert "internal errors repeat" in str(world.fatal[0])
        with pytest.raises(SchedoError):
            await world.submit()


async def test_a_commit_that_is_always_refused_ends_the_server(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(path) as world:

        async def refuse(changes: object) -> None:
            raise OverflowError("Python int too large to convert to SQLite INTEGER")

        monkeypatch.setattr(world.store, "commit", refuse)
        monkeypatch.setattr(loop, "RECOVERY_PAUSE_S", 0.01)
        async with asyncio.timeout(10):
            while not world.fatal:
                world.worker.attach()
                with pytest.raises(SchedoError):
                    await world.submit()
                await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.01)


async def test_a_disk_that_keeps_failing_does_not_end_the_server(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "RECOVERY_PAUSE_S", 0.01)
    async with running(path) as world:
        world.store.fail_next(*[StoreError("another program is writing")] * 30)
        with pytest.raises(StoreError):
            await world.submit(delay_us=MINUTE)
        for _ in range(29):
            await recovered(world)
            with pytest.raises(StoreError):
                await world.submit(delay_us=MINUTE)
        await recovered(world)

        assert not world.fatal


async def test_an_error_of_a_worker_connection_does_not_stop_the_turns(path: Path) -> None:
    async with running(path) as world:

        class FailingWorker:
            def start(self, lease: object) -> None:
                raise KeyError("a transport that breaks its promise")

            def stop(self, stop: object) -> None:
                raise AssertionError

        await world.submit(delay_us=MINUTE)
        world.engine.attach(world.worker.spec, FailingWorker())
        world.clock.stall(MINUTE)
        world.worker.attach()

        assert await ends(world, (await submitted(world)).id) is State.COMPLETED
