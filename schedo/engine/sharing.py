"""The event loop's time, shared between the timers and the requests of clients.

The loop handles the timers once a turn. So the work for clients is bounded in each turn: all long
work together runs for a slice of it, and requests begin only as long as the turn stays short. The
rest waits in order for later turns.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

# The slice of what is made for readers. A look-up of a job takes five turns, and so waits for five.
SLICE_S = 0.001
# That of jobs which clients submit and workers run. The longer it is, the less each of them costs.
JOBS_SLICE_S = 0.003
STEP_S = 0.001
BEGUN_MAX = 64  # more at a time gain nothing
URGENT_MAX = 4  # health checks that begin in one turn before all others
_BEGUN_AT_FIRST = 16
_JUDGED_MIN = 4  # a turn with fewer requests does not change the limit
_LONG_TURN_S = 0.006
_SHORT_TURN_S = 0.0015


class LoopShare:
    """The clients' share of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # With each the time after which the turn ends that has called it.
        self._waiting: deque[tuple[Callable[[], None], float]] = deque()
        self._urgent: deque[Callable[[], None]] = deque()
        self._begun_max = _BEGUN_AT_FIRST
        self._begun = 0  # in this turn
        self._begun_before = 0  # in the previous one, whose length is not known yet
        self._is_turn_due = False
        self._turned_at = 0.0

    def admits(self) -> bool:
        """Whether a request may begin in this turn; if so, it counts as begun."""
        if self._waiting or self._begun >= self._begun_max:
            return False
        self._begun += 1
        self._arm()
        return True

    def begin_later(self, begin: Callable[[], None], *, is_urgent: bool = False) -> None:
        """Call `begin` in the first turn that has time for a request.

        Urgent requests go before all others, but only a few in one turn: many of them must not keep
        the others out.
        """
        if is_urgent:
            self._urgent.append(begin)
            self._arm()
            return

        def begin_now() -> None:
            self._begun += 1
            begin()

        self._enter(begin_now, JOBS_SLICE_S)

    async def admitted(self) -> None:
        """Wait for a turn that has time for a request; it then counts as begun."""
        if self.admits():
            return
        turn = asyncio.Event()
        self.begin_later(turn.set)
        await turn.wait()

    async def run(self, steps: Generator[None, None, T], slice_s: float) -> T:
        """Return the result of the steps, each of which takes a millisecond or two at most.

        slice_s: after how many seconds of work a turn ends that has taken one of them.
        """
        result: asyncio.Future[T] = self._loop.create_future()
        work = _Work(lambda step: self._enter(step, slice_s), steps, result)
        self._enter(work, slice_s)
        try:
            return await result
        finally:
            work.cancel()
            del result  # breaks a cycle: an error refers to this frame, the future to the error

    def _enter(self, call: Callable[[], None], slice_s: float) -> None:
        self._waiting.append((call, slice_s))
        self._arm()

    def _arm(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_turn_due = False
        now = time.perf_counter()
        if self._begun_before:
            self._adjust_limit(now - self._turned_at)
        self._turned_at, self._begun_before = now, self._begun
        self._begun = 0
        for _ in range(min(URGENT_MAX, len(self._urgent))):
            self._urgent.popleft()()
        while self._waiting and self._begun < self._begun_max:
            call, slice_s = self._waiting.popleft()
            call()
            if time.perf_counter() - now > slice_s:
                break
        self._begun_before += self._begun
        self._begun = 0
        if self._waiting or self._urgent or self._begun_before >= _JUDGED_MIN:
            self._arm()  # after the first steps of the requests that have just begun
        else:
            self._begun_before = 0

    def _adjust_limit(self, took_s: float) -> None:
        """Begin fewer requests a turn after a long turn, more after a short and full one."""
        if took_s > _LONG_TURN_S:
            self._begun_max = max(1, self._begun_max // 2)
        elif took_s < _SHORT_TURN_S and self._begun_before >= self._begun_max:
            self._begun_max = min(BEGUN_MAX, 2 * self._begun_max)


class _Work(Generic[T]):
    """Steps that the share runs one by one."""

    __slots__ = ("_enter", "_result", "_steps")

    def __init__(
        self,
        enter: Callable[[Callable[[], None]], None],
        steps: Generator[None, None, T],
        result: asyncio.Future[T],
    ) -> None:
        self._enter = enter
        self._steps = steps
        self._result: asyncio.Future[T] | None = result

    def cancel(self) -> None:
        """Stop the work after the current step."""
        self._result = None

    def __call__(self) -> None:
        """Take one step."""
        result = self._result
        if result is None:
            self._steps.close()
            return
        try:
            next(self._steps)
        except StopIteration as end:
            if not result.done():
                result.set_result(end.value)
        except Exception as error:
            if not result.done():
                result.set_exception(error)
        else:
            self._enter(self)
            return
        # An error refers to this frame by its traceback, so the frame must not refer to the error.
        self._result = result = None


class SharedCall(Generic[T]):
    """One call for many callers: callers that arrive while it runs share the next call.

    So a result is never older than its request.
    """

    def __init__(self, make: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._make = make
        self._running: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def result(self) -> T:
        """Return the result of a call that begins now or later.

        The callers continue over several turns, not all of them in the turn that has the result.
        """
        if self._next is None:
            self._next = asyncio.ensure_future(self._run(self._running))
            # If all callers have given up, nothing awaits it, and asyncio would log its error.
            self._next.add_done_callback(lambda task: task.cancelled() or task.exception())
        result = await asyncio.shield(self._next)
        await loop_share().admitted()
        return result

    async def _run(self, before: asyncio.Task[T] | None) -> T:
        if before is not None:
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        return await self._make()


_SHARES: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopShare] = WeakKeyDictionary()


def loop_share() -> LoopShare:
    """Return the share of the running event loop."""
    loop = asyncio.get_running_loop()
    share = _SHARES.get(loop)
    if share is None:
        share = _SHARES[loop] = LoopShare(loop)
    return share


async def in_steps(steps: Generator[None, None, T]) -> T:
    """Return the result of the steps, each of which takes a millisecond or two at most."""
    return await loop_share().run(steps, SLICE_S)


async def jobs_in_steps(steps: Generator[None, None, T]) -> T:
    """As in_steps, for jobs and results that the server exchanges with clients and workers."""
    return await loop_share().run(steps, JOBS_SLICE_S)
