"""A file that a command writes: it is there as a whole or not at all."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

WRITE = """
import signal, sys
from pathlib import Path
from schedo.cli.new_file import new_file
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it, and children inherit that
with new_file(Path("copy.db"), is_replacing=False) as path:
    path.write_text("the first half")
    print("begun", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=str)
def test_a_signal_that_ends_a_command_leaves_no_half_file(
    tmp_path: Path, number: signal.Signals
) -> None:
    writing = subprocess.Popen(
        [sys.executable, "-c", WRITE], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert writing.stdout is not None
    assert writing.stdout.readline() == b"begun\n"
    (half,) = tmp_path.iterdir()
    assert half.name.startswith(".copy.db.")

    writing.send_signal(number)
    writing.communicate(timeout=30)

    assert writing.returncode == -number
    assert list(tmp_path.iterdir()) == []
