"""Locks have the highest descriptors, and the table of a server has room for them at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from schedo.descriptors import duplicate_above

TABLE = """
import os, resource, sys
from pathlib import Path
from schedo.descriptors import duplicate_above, grow_table
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit if most < 0 else min(limit, most), most))
grow_table()
status = Path("/proc/self/status").read_text().splitlines()
duplicates = [duplicate_above(0) for _ in range(12)]
print(next(line.split()[1] for line in status if "FDSize" in line), *duplicates)
print(*map(os.get_inheritable, duplicates))
"""


def grown(limit: int) -> tuple[int, list[int]]:
    """Return the length of a table that was grown under the limit, and twelve duplicates."""
    done = subprocess.run(
        [sys.executable, "-c", TABLE, str(limit)], capture_output=True, text=True, check=True
    )
    numbers, inheritable = done.stdout.splitlines()
    length, *duplicates = map(int, numbers.split())
    assert "True" not in inheritable
    return length, duplicates


def test_the_table_has_its_length_before_it_is_needed() -> None:
    length, duplicates = grown(4_100)

    assert length >= 4_096
    assert duplicates == [*range(4_086, 4_098)]


def test_a_low_limit_leaves_room_for_a_few_duplicates() -> None:
    length, duplicates = grown(1_000)

    assert length >= 1_000
    assert duplicates[:10] == [*range(990, 1_000)]
    assert max(duplicates[10:]) < 990


def test_in_a_program_that_embeds_schedo_the_table_stays_as_it_is(tmp_path: Path) -> None:
    with open(tmp_path / "file", "wb") as file:
        duplicate = duplicate_above(file.fileno())
        try:
            assert duplicate < 1_000
            assert os.path.sameopenfile(duplicate, file.fileno())
        finally:
            os.close(duplicate)
