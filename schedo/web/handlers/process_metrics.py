"""Metrics of this process from /proc, under the names that every Prometheus client uses."""

from __future__ import annotations

import contextlib
import os
import resource

from schedo.protocol.prometheus import Family, Sample

_STAT_AFTER_NAME = 3  # the number of the first field behind the name, which may hold spaces
_UTIME, _STIME, _STARTTIME, _VSIZE, _RSS = 14, 15, 22, 23, 24  # man 5 proc_pid_stat


def read_process() -> list[Family]:
    """Return the metric families of the process; none without /proc."""
    families: list[Family] = []
    with contextlib.suppress(OSError):
        families += _read_stat()
        open_fds = len(os.listdir("/proc/self/fd")) - 1  # one belongs to the listing itself
        families.append(_gauge("process_open_fds", "Open file descriptors.", open_fds))
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        families.append(_gauge("process_max_fds", "How many there may be.", limit))
    return families


def read_resident_bytes() -> int:
    """Return the memory that the process has in use; 0 without /proc."""
    with contextlib.suppress(OSError), open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _read_stat() -> list[Family]:
    with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    with open("/proc/stat", encoding="ascii") as file:
        booted_at = next(int(line.split()[1]) for line in file if line.startswith("btime "))
    utime, stime, started, vsize, rss = (
        int(fields[number - _STAT_AFTER_NAME])
        for number in (_UTIME, _STIME, _STARTTIME, _VSIZE, _RSS)
    )
    ticks_per_second = os.sysconf("SC_CLK_TCK")
    cpu = Sample((utime + stime) / ticks_per_second)
    started_at = booted_at + started / ticks_per_second
    resident = rss * os.sysconf("SC_PAGE_SIZE")
    return [
        Family("process_cpu_seconds_total", "counter", "Processor time used.", [cpu]),
        _gauge("process_resident_memory_bytes", "Memory in use.", resident),
        _gauge("process_virtual_memory_bytes", "Address space in use.", vsize),
        _gauge("process_start_time_seconds", "When it began, since 1970.", started_at),
    ]


def _gauge(name: str, text: str, value: float) -> Family:
    return Family(name, "gauge", text, [Sample(value)])
