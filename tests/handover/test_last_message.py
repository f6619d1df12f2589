"""Both processes of an upgrade know the same end of it, even if one of them has stood still."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import pytest

from schedo.handover import successor as successors
from schedo.handover.link import Link
from schedo.handover.messages import Activated, BadMessage, Failed, Ready, UpgradeFailed
from schedo.handover.predecessor import Predecessor
from schedo.handover.successor import Successor

ACTIVATED = Activated(pid=7, version="2.0", epoch=4, took_ms=12.0, steps_ms={})


class Ends(NamedTuple):
    """The two ends of an upgrade's link."""

    successor: Successor  # as the old process has it
    predecessor: Predecessor  # as the new process has it
    ours: socket.socket
    theirs: socket.socket


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(["/bin/sleep", "60"])  # noqa: ASYNC220  # for a millisecond
    successor = Successor(process, Link(ours), os.open("/dev/null", os.O_RDONLY))
    stderr = os.dup(2)
    predecessor = Predecessor(theirs, stderr)
    yield Ends(successor, predecessor, ours, theirs)
    predecessor.link.close()
    os.close(stderr)
    await successor.kill()


class LateTimer:
    """The time is over after `at_last` has run, before the loop looks at its sockets."""

    def __init__(self) -> None:
        self.at_last: list[Callable[[], object]] = []

    def start(self, _: float, on_silence: Callable[[], None]) -> LateTimer:
        loop = asyncio.get_running_loop()
        for each in (*self.at_last, on_silence):
            loop.call_soon(each)
        return self

    def cancel(self) -> None:
        return


@pytest.fixture
def timer(monkeypatch: pytest.MonkeyPatch) -> LateTimer:
    timer = LateTimer()
    monkeypatch.setattr(successors, "SilenceTimer", timer.start)
    return timer


async def test_a_report_that_came_while_the_old_process_stood_still_counts(
    ends: Ends, timer: LateTimer
) -> None:
    timer.at_last = [lambda: ends.predecessor.report_active(ACTIVATED)]

    assert await ends.successor.expect_last(Activated, 5.0) == ACTIVATED


async def test_a_failure_that_came_meanwhile_is_the_reason(ends: Ends, timer: LateTimer) -> None:
    timer.at_last = [lambda: ends.predecessor.link.send(Failed("a bug"))]

    with pytest.raises(UpgradeFailed, match="a bug"):
        await ends.successor.expect_last(Activated, 5.0)


async def test_garbage_that_came_meanwhile_is_the_reason(ends: Ends, timer: LateTimer) -> None:
    timer.at_last = [lambda: ends.theirs.send(b"garbage")]

    with pytest.raises(UpgradeFailed, match="does not speak this protocol"):
        await ends.successor.expect_last(Activated, 5.0)


async def test_a_new_process_whose_time_is_over_cannot_report_any_more(ends: Ends) -> None:
    with pytest.raises(TimeoutError):
        await ends.successor.expect_last(Activated, 0.0)

    with pytest.raises(UpgradeFailed, match="takes its store back"):
        ends.predecessor.report_active(ACTIVATED)


async def test_a_new_process_goes_on_if_the_old_one_has_died(ends: Ends) -> None:
    ends.successor.close()

    ends.predecessor.report_active(ACTIVATED)

    assert ends.theirs.fileno() < 0
    ends.successor.close = lambda: None  # type: ignore[method-assign]  # it is closed


async def test_a_report_within_the_time_ends_the_wait(ends: Ends) -> None:
    ends.predecessor.report_active(ACTIVATED)

    assert await ends.successor.expect_last(Activated, 60.0) == ACTIVATED


async def test_the_last_message_is_one_of_the_messages(ends: Ends) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link = Link(ours)
    with theirs:
        theirs.send(b'{"type":"ready"}')
        theirs.send(b"garbage")
        assert link.receive_last() == Ready()
        with pytest.raises(BadMessage):
            link.receive_last()
        assert link.receive_last() is None
    link.close()
