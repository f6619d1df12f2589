"""The order in which a take-over run stops its processes, and what it waits for."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from schedo.handover.messages import StandbyStatus
from tests.e2e.takeover import processes
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


def standby(pid: int, *, is_warm: bool = True) -> StandbyStatus:
    return StandbyStatus(pid=pid, version="1", since="", is_warm=is_warm)


async def test_nothing_is_killed_before_each_standby_has_the_listener(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[list[StandbyStatus]] = [
        [],
        [standby(2)],  # the other one has no listener: clients are refused if both servers die
        [standby(2, is_warm=False), standby(3, is_warm=False)],
        [standby(2), standby(3, is_warm=False)],
        [],
    ]

    async def list_standbys(_: Servers) -> list[StandbyStatus]:
        return shown.pop(0)

    monkeypatch.setattr(Servers, "_list_standbys", list_standbys)
    monkeypatch.setattr(processes, "LOOK_S", 0.0)
    servers = Servers(tmp_path, standby=True, failpoints=random.Random(0))

    await servers.wait_standby(warm=True)

    assert shown == [[]]
    servers._supervisor.__exit__(None, None, None)


@pytest.mark.parametrize("active", [1, 2, 3])
def test_the_active_process_is_stopped_last(tmp_path: Path, active: int) -> None:
    servers = Servers(tmp_path, standby=True, failpoints=random.Random(0))
    ended: list[int] = []
    servers.members = [Process(pid, ended) for pid in (1, 2, 3)]  # type: ignore[misc]
    (tmp_path / "schedo.db.lock").write_text(f"pid {active}")

    assert asyncio.run(servers.stop()) == [0, 0, 0]
    assert ended[-1] == active
