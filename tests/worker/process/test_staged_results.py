"""The staged results: a server reads them when their child has died or does nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from schedo.core.leases import AttemptResult, Completed
from schedo.core.model import LeaseKey
from schedo.protocol.frames import encode_result
from schedo.worker.process.child_memory import make_memory
from schedo.worker.process.staged_results import BYTES, StagedResults

CHILD = """
import os, signal, sys
from schedo.core.leases import AttemptResult, Completed
from schedo.core.model import LeaseKey
from schedo.protocol.frames import encode_result
from schedo.worker.process.staged_results import StagedResults
staged = StagedResults(int(sys.argv[1]))
for number in (1, 2):
    staged.add(encode_result(AttemptResult(LeaseKey(number, 1, 1), Completed(b"7"))))
os.kill(os.getpid(), signal.SIGKILL)
"""


def result(number: int, value: bytes = b"7") -> AttemptResult:
    return AttemptResult(LeaseKey(number, 1, 1), Completed(value))


@pytest.fixture
def memory() -> Iterator[int]:
    descriptor = make_memory()
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def child(memory: int) -> Iterator[StagedResults]:
    staged = StagedResults(memory)
    yield staged
    staged.close()


@pytest.fixture
def server(memory: int) -> Iterator[StagedResults]:
    staged = StagedResults(memory)
    yield staged
    staged.close()


def test_the_results_of_a_killed_process_can_be_read(memory: int, server: StagedResults) -> None:
    before = server.read()

    subprocess.run([sys.executable, "-c", CHILD, str(memory)], pass_fds=(memory,), check=False)

    assert (before, server.read()) == ([], [result(1), result(2)])


def test_sent_results_are_gone(child: StagedResults, server: StagedResults) -> None:
    child.add(encode_result(result(1)))
    child.clear()
    child.add(encode_result(result(2)))

    assert server.read() == [result(2)]


def test_results_are_taken_only_when_they_stay_the_same_and_only_once(
    child: StagedResults, server: StagedResults
) -> None:
    child.add(encode_result(result(1)))
    first = server.take_stuck()
    child.add(encode_result(result(2)))
    second, third, fourth = server.take_stuck(), server.take_stuck(), server.take_stuck()

    assert (first, second, third, fourth) == ([], [], [result(1), result(2)], [])


def test_a_result_without_room_is_not_added(child: StagedResults, server: StagedResults) -> None:
    child.add(encode_result(result(1)))

    was_added = child.add(encode_result(result(2, b"1" * BYTES)))

    assert (was_added, server.read()) == (False, [result(1)])


@pytest.mark.parametrize("number", [2 << 32 | 5, 1 << 32 | (2**32 - 1), 2**64 - 1])
def test_damaged_results_are_none(memory: int, server: StagedResults, number: int) -> None:
    os.pwrite(memory, number.to_bytes(8, sys.byteorder), os.fstat(memory).st_size - BYTES + 8)

    assert server.read() == []
