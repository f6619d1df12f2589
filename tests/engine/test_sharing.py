"""Long work and new requests of clients share the loop's time that the timers leave."""

from __future__ import annotations

import asyncio
import gc
import time
import types
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import pytest

from schedo.engine import sharing
from schedo.engine.sharing import LoopShare, SharedCall, in_steps, jobs_in_steps


@types.coroutine
def next_turn() -> Generator[None, None, None]:
    """Run all callbacks that are ready now, but none that they make ready."""
    yield


class Ticks:
    """Counts the turns of the loop."""

    def __init__(self) -> None:
        self.count = 0
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while True:
            self.count += 1
            await next_turn()

    def end(self) -> int:
        self._task.cancel()
        return self.count


def count_to(count: int) -> Generator[None, None, int]:
    for _ in range(count):
        yield
    return count


async def test_work_that_runs_in_steps_returns_its_result() -> None:
    assert await in_steps(count_to(100)) == 100


async def test_other_callbacks_run_between_the_steps_of_long_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sharing, "SLICE_S", 0.0)
    ticks = Ticks()

    await asyncio.gather(*(in_steps(count_to(50)) for _ in range(10)))

    assert ticks.end() >= 500


@pytest.mark.parametrize(("run", "in_a_turn"), [(in_steps, 2), (jobs_in_steps, 5)])
async def test_a_turn_is_shorter_for_readers_than_for_jobs(
    run: Callable[[Generator[None, None, None]], Coroutine[Any, Any, None]],
    in_a_turn: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    ticks = Ticks()
    turns: list[int] = []

    def steps_of_700_us() -> Generator[None, None, None]:
        nonlocal now
        for _ in range(4 * in_a_turn):
            now += 0.0007
            turns.append(ticks.count)
            yield

    await run(steps_of_700_us())

    assert [*Counter(turns).values()] == [in_a_turn] * 4


async def test_several_long_computations_alternate() -> None:
    done: list[str] = []

    async def work(name: str, count: int) -> None:
        await in_steps(count_to(count))
        done.append(name)

    await asyncio.gather(work("long", 20_000), work("short", 10))

    assert done == ["short", "long"]


async def test_an_error_of_a_step_reaches_the_caller() -> None:
    def fail() -> Generator[None, None, None]:
        yield
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        await in_steps(fail())


async def test_a_handled_error_leaves_no_reference_cycle() -> None:
    class Body:
        """A body that represents megabytes of memory."""

    def refuse(body: Body) -> Generator[None, None, None]:
        yield
        raise ValueError(type(body).__name__)

    async def make_poll() -> None:
        with pytest.raises(ValueError, match="Body"):
            await in_steps(refuse(Body()))

    gc.collect()
    gc.disable()
    try:
        await asyncio.ensure_future(make_poll())
        await next_turn()
        assert not [each for each in gc.get_objects() if isinstance(each, Body)]
    finally:
        gc.enable()


async def test_cancelled_work_closes_its_generator() -> None:
    closed = False

    def endless() -> Generator[None, None, None]:
        nonlocal closed
        try:
            while True:
                yield
        finally:
            closed = True

    waiting = asyncio.ensure_future(in_steps(endless()))
    await next_turn()
    await next_turn()
    waiting.cancel()
    await asyncio.wait([waiting])
    await next_turn()
    await next_turn()

    assert closed


async def test_a_bounded_number_of_requests_begins_in_one_turn() -> None:
    share = LoopShare(asyncio.get_running_loop())
    begun = 0
    while share.admits():
        begun += 1

    assert 0 < begun <= sharing.BEGUN_MAX


async def test_waiting_requests_begin_in_order_over_several_turns() -> None:
    share = LoopShare(asyncio.get_running_loop())
    begun: list[tuple[int, int]] = []
    ticks = Ticks()
    for number in range(500):
        share.begin_later(lambda number=number: begun.append((number, ticks.count)))  # type: ignore[misc]
    while len(begun) < 500:
        await next_turn()

    ticks.end()
    assert [number for number, _ in begun] == list(range(500))
    assert len({turn for _, turn in begun}) >= 500 // sharing.BEGUN_MAX


async def test_fewer_requests_begin_in_a_turn_if_they_take_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    monkeypatch.setattr(sharing, "_JUDGED_MIN", 1)
    share = LoopShare(asyncio.get_running_loop())

    async def begin_all() -> int:
        begun = 0
        while share.admits():
            begun += 1
        return begun

    async def pass_time(seconds: float) -> None:
        nonlocal now
        await next_turn()
        now += seconds
        for _ in range(3):
            await next_turn()

    at_first = await begin_all()
    await pass_time(0.1)
    after_a_long_turn = await begin_all()
    for _ in range(20):
        await pass_time(0.1)
        in_the_end = await begin_all()
    for _ in range(20):
        await pass_time(0.0)
        when_quick = await begin_all()

    assert after_a_long_turn < at_first
    assert in_the_end == 1
    assert when_quick == sharing.BEGUN_MAX


async def test_urgent_requests_begin_first_but_only_a_few_in_each_turn() -> None:
    share = LoopShare(asyncio.get_running_loop())
    begun: list[str] = []
    for _ in range(sharing.BEGUN_MAX):
        share.begin_later(lambda: begun.append("other"))
    for _ in range(2 * sharing.URGENT_MAX):
        share.begin_later(lambda: begun.append("urgent"), is_urgent=True)

    await next_turn()

    assert begun[: sharing.URGENT_MAX + 1] == ["urgent"] * sharing.URGENT_MAX + ["other"]


class Calls:
    """Counts the calls; the test ends each of them."""

    def __init__(self) -> None:
        self.count = 0
        self.gate = asyncio.Event()
        self.shared = SharedCall(self._call)

    async def _call(self) -> int:
        self.count += 1
        number = self.count
        await self.gate.wait()
        return number


async def test_callers_of_the_same_moment_share_one_call() -> None:
    calls = Calls()
    calls.gate.set()

    assert await asyncio.gather(*(calls.shared.result() for _ in range(100))) == [1] * 100


async def test_callers_that_arrive_during_a_call_share_the_next_one() -> None:
    calls = Calls()
    first = asyncio.ensure_future(calls.shared.result())
    while not calls.count:
        await next_turn()
    later = [asyncio.ensure_future(calls.shared.result()) for _ in range(100)]
    await next_turn()
    assert calls.count == 1

    calls.gate.set()

    assert (await first, await asyncio.gather(*later)) == (1, [2] * 100)


async def test_a_cancelled_caller_does_not_end_a_shared_call() -> None:
    calls = Calls()
    leaving, staying = (asyncio.ensure_future(calls.shared.result()) for _ in range(2))
    await next_turn()
    leaving.cancel()
    calls.gate.set()

    assert await staying == 1
    assert leaving.cancelled()


async def test_the_callers_of_a_shared_call_continue_over_several_turns() -> None:
    calls = Calls()
    calls.gate.set()
    ticks = Ticks()
    went_on: list[int] = []

    async def go_on() -> None:
        await calls.shared.result()
        went_on.append(ticks.count)

    await asyncio.gather(*(go_on() for _ in range(500)))

    ticks.end()
    assert max(Counter(went_on).values()) <= sharing.BEGUN_MAX


async def test_an_error_that_no_caller_waits_for_any_more_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    async def fail() -> None:
        begun.set()
        await gate.wait()
        raise ConnectionError("the database is away")

    shared = SharedCall(fail)
    caller = asyncio.ensure_future(shared.result())
    await begun.wait()
    caller.cancel()
    await asyncio.wait([caller])

    gate.set()
    running = shared._running
    assert running is not None
    await asyncio.wait([running])
    shared._running = None
    del running
    gc.collect()

    assert not caplog.records
