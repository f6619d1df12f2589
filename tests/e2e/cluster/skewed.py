"""`schedo`, on a machine whose wall clock is ahead of the real one, or behind it.

CLUSTER_CLOCK is the path of a file with the offset in microseconds, which may change at any time.
The script is run by its path, so that the schedo of another checkout may be on PYTHONPATH.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path
from typing import Any

from schedo import clock
from schedo.cli.main import main

PATH_VARIABLE = "CLUSTER_CLOCK"
# The kernel wakes a process whose clock is set; here an alarm comes so early that it notices that.
NOTICE_US = 50_000
_OFFSET = struct.Struct("q")


def write_offset(path: Path, offset_us: int) -> None:
    """Set the clock of the processes that have the file."""
    data = _OFFSET.pack(offset_us)
    with path.open("r+b" if path.exists() else "wb", buffering=0) as file:
        file.write(data)  # in one call, and never an empty file


class SkewedTime:
    """The module time, with the wall clock of that machine; and the alarm on this clock."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._memory = mmap.mmap(file.fileno(), _OFFSET.size, access=mmap.ACCESS_READ)
        self._settime = clock._settime

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def _offset_us(self) -> int:
        offset_us: int = _OFFSET.unpack(self._memory[:])[0]
        return offset_us

    def time_ns(self) -> int:
        return time.time_ns() + self._offset_us() * 1_000

    def settime(self, fd: int, at_us: int) -> None:
        """Arm an alarm at an instant of this clock, or before."""
        latest = time.time_ns() // 1_000 + NOTICE_US
        self._settime(fd, max(1, min(at_us - self._offset_us(), latest)))


if __name__ == "__main__":
    skewed = SkewedTime(Path(os.environ[PATH_VARIABLE]))
    vars(clock).update(time=skewed, _settime=skewed.settime)
    main()
