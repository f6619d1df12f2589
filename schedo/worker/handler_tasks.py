"""The asyncio tasks in which the handlers of an application run.

A handler that waits has an asyncio task of its own until it ends. Handlers that end without a wait
run one after the other in the same asyncio task, because a new one for each of them would take a
quarter of the time of such an attempt. See docs/adr/0061-handlers-that-do-not-wait-share-a-task.md.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import Context, copy_context
from operator import is_
from time import perf_counter_ns

from schedo.tasks.python import OnEnd, TaskRunner
from schedo.tasks.runner import AttemptContext

# How many handlers begin in one pass of the event loop; as many again if those before have taken
# less than PASS_NS. A handler may compute for a while before it waits, and between two passes the
# loop serves its sockets and the other handlers.
BEGINS_MAX = 32
PASS_NS = 500_000


class HandlerTasks:
    """Begins attempts in their order, a limited number in one pass of the event loop.

    on_end: gets each attempt with its result.
    """

    def __init__(self, on_end: OnEnd) -> None:
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._unbegun: deque[tuple[TaskRunner, AttemptContext]] = deque()
        self._pass = 0  # the number of the pass
        self._began_ns = 0  # when the pass began, by perf_counter_ns
        self._begins_left = 0  # in this pass, before the time that it has taken is looked at
        self._tasks: list[asyncio.Task[None]] = []  # of this pass; empty: none is under way

    def begin(self, runner: TaskRunner, context: AttemptContext) -> None:
        """Begin the attempt in one of the next passes of the event loop."""
        self._unbegun.append((runner, context))
        if not self._tasks:
            self._begin_pass()

    def _begin_pass(self) -> None:
        """Make asyncio tasks for a pass: one, or twice as many as had to wait in the pass before.

        So a burst of handlers that wait has as many asyncio tasks after a few passes.
        """
        self._pass += 1
        if not self._unbegun:
            self._tasks = []
            return
        waiting = sum(not task.done() for task in self._tasks)
        count = min(max(1, 2 * waiting), BEGINS_MAX, len(self._unbegun))
        self._began_ns = perf_counter_ns()
        self._begins_left = BEGINS_MAX
        self._tasks = [self._loop.create_task(self._run(self._pass)) for _ in range(count)]
        self._loop.call_soon(self._begin_pass)  # after the first steps of these tasks

    async def _run(self, number: int) -> None:
        """Run attempts in this asyncio task, until one of them has left something behind in it.

        number: of the pass. After a wait it is over, because it ends before anything can go on.
        """
        task = asyncio.current_task()
        assert task is not None, "this is a coroutine of a task"
        clean = copy_context()
        while self._unbegun:
            if not self._begins_left:
                if perf_counter_ns() - self._began_ns >= PASS_NS:
                    return
                self._begins_left = BEGINS_MAX
            self._begins_left -= 1
            runner, context = self._unbegun.popleft()
            await runner.run(context, task, self._on_end)
            if self._pass != number or task.cancelling():
                return
            left = copy_context()
            if (left or clean) and not _is_same(left, clean):  # most programs have no variables
                return


def _is_same(context: Context, clean: Context) -> bool:
    """Whether no variable has another value. If the order differs, it may say no."""
    return (
        len(context) == len(clean)
        and all(map(is_, context, clean))
        and all(map(is_, context.values(), clean.values()))
    )
