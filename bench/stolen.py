"""Processor time that the host of a virtual machine has taken for others (`steal`, proc_stat(5)).

A process that should run stands still in it, and nothing in the machine is the reason. So a
measured time in which some was taken says little about the program.
"""

from __future__ import annotations

import os

_STEAL = 8  # the field of the first line, after its name


def read_stolen_s() -> float:
    """Return the seconds that all processors together have lost since the start of the machine."""
    with open("/proc/stat") as file:
        fields = file.readline().split()
    return int(fields[_STEAL]) / os.sysconf("SC_CLK_TCK")
