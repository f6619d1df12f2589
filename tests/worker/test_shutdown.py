"""The signals of a process that runs attempts."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from schedo.worker.shutdown import SIGNALS, handle_signals
from tests.worker.calls import both_loops


def end_a_fork(number: signal.Signals) -> int:
    """Fork, end the new process with the signal, and return its exit code."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writing, b"1")
        signal.pause()
        os._exit(0)
    os.read(reading, 1)
    os.kill(pid, number)
    for descriptor in (reading, writing):
        os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@both_loops
def test_a_signal_to_a_process_that_a_handler_has_forked_does_not_stop_the_worker(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    stops: list[str] = []
    before = [signal.getsignal(number) for number in SIGNALS]

    async def run() -> int:
        handle_signals(lambda: stops.append("drain"), lambda: stops.append("now"))
        return await asyncio.to_thread(end_a_fork, signal.SIGTERM)

    with asyncio.Runner(loop_factory=make_loop) as runner:
        code = runner.run(run())
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)

    assert code == -signal.SIGTERM
    assert stops == []
