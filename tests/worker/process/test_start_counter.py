"""The start counter: a number that two processes share, even if one of them dies."""

from __future__ import annotations

import os
import subprocess
import sys

from schedo.worker.process.child_memory import make_memory
from schedo.worker.process.start_counter import StartCounter

CHILD = """
import os, signal, sys
from schedo.worker.process.start_counter import StartCounter
StartCounter(int(sys.argv[1])).count = 70_000
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_count_of_a_killed_process_can_be_read() -> None:
    memory = make_memory()
    starts = StartCounter(memory)
    before = starts.count

    subprocess.run([sys.executable, "-c", CHILD, str(memory)], pass_fds=(memory,), check=False)
    os.close(memory)

    assert (before, starts.count) == (0, 70_000)
    starts.close()
