"""The work that every runner does, and the one line of JSON in which it reports.

A runner is a program of its own: it gets the Work as JSON in argv[1], does it on a store that is
empty, checks that every job ran once, and prints a Result as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Mode = Literal["stream", "drain"]
MODES: tuple[Mode, ...] = ("stream", "drain")
QUEUES = 3


@dataclass(frozen=True)
class Work:
    """No-op jobs, submitted in batches one after the other.

    mode: stream: the worker is up before the first submit; the time ends when all jobs have ended
        durably. drain: all jobs are in the store before the worker starts; the time is the
        worker's.
    tasks: the number of tasks that the jobs name in turn.
    queues: the number of queues that they name in turn, with schedo; 0: one for each task, up to
        QUEUES.
    keyed: each job has a unique key and, with schedo, two tags.
    """

    mode: Mode = "stream"
    count: int = 20_000
    batch: int = 1_000
    payload_bytes: int = 10
    tasks: int = 1
    queues: int = 0
    keyed: bool = False

    def payload(self, number: int) -> dict[str, Any]:
        """Return the arguments of one job; as JSON they have about `payload_bytes` bytes."""
        filler = "x" * max(0, self.payload_bytes - 20)
        return {"n": number, "filler": filler} if filler else {"n": number}

    def task(self, number: int) -> str:
        """Return the name of a job's task: task0, task1, …"""
        return f"task{number % self.tasks}"

    def queue(self, number: int) -> str:
        """Return the name of a job's queue."""
        return f"queue{number % (self.queues or min(self.tasks, QUEUES))}"

    def options(self, number: int) -> dict[str, Any]:
        """Return the options of one job that no other job has."""
        if not self.keyed:
            return {}
        return {"unique": f"key-{number}", "tags": ["bench", f"part-{number % 100}"]}

    def batches(self) -> Iterator[range]:
        """Return the numbers of the jobs, one range a batch."""
        for first in range(0, self.count, self.batch):
            yield range(first, min(first + self.batch, self.count))


@dataclass(frozen=True)
class Result:
    """What a runner measured, in seconds, and the versions and settings that it used.

    cpu_s: the processor time of each part of the runner, from the first submit to the last end.
    """

    submit_s: float
    total_s: float
    about: str
    cpu_s: dict[str, float] = field(default_factory=dict)


def read_work() -> Work:
    """Return the work that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("work", help="a Work as JSON")
    return Work(**json.loads(parser.parse_args().work))


def print_result(result: Result) -> None:
    """Print the result for `python -m bench.peers`."""
    print(json.dumps(asdict(result)))
    sys.stdout.flush()


class Tally:
    """Counts the runs of each job and checks that each ran once."""

    def __init__(self, count: int) -> None:
        self._runs = bytearray(count)
        self.left = count

    def ran(self, number: int) -> bool:
        """Count a run; return whether it was the last job's."""
        self._runs[number] += 1
        self.left -= 1
        return self.left == 0

    def check(self) -> None:
        """Raise AssertionError unless every job ran once."""
        wrong = sum(runs != 1 for runs in self._runs)
        assert not wrong, f"{wrong} jobs did not run exactly once"
