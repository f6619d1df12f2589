"""The order in which a take-over run stops its processes."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.e2e.takeover.processes import Servers


class Process:
    """A server process that ends at SIGTERM."""

    def __init__(self, pid: int, ended: list[int]) -> None:
        self.pid = pid
        self._ended = ended

    def poll(self) -> int | None:
        return 0 if self.pid in self._ended else None

    def terminate(self) -> None:
        self._ended.append(self.pid)

    def wait(self, timeout_s: float) -> int:
        return 0


@pytest.mark.parametrize("active", [1, 2, 3])
def test_the_active_process_is_stopped_last(tmp_path: Path, active: int) -> None:
    servers = Servers(tmp_path, standby=True, failpoints=random.Random(0))
    ended: list[int] = []
    servers.members = [Process(pid, ended) for pid in (1, 2, 3)]  # type: ignore[misc]
    (tmp_path / "schedo.db.lock").write_text(f"pid {active}")

    assert asyncio.run(servers.stop()) == [0, 0, 0]
    assert ended[-1] == active
