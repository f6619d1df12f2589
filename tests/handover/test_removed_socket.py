"""A control socket whose file is removed while its server runs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from schedo.handover.client import read_status
from schedo.handover.control import Control
from schedo.server import control
from schedo.server.control import ControlSocket
from tests.handover.active import FakeActive, serving
from tests.passes import one_pass


@pytest.fixture(autouse=True)
def checked_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "CHECK_S", 0.0)


async def made_again(path: Path) -> None:
    async with asyncio.timeout(5):
        while not path.is_socket():  # noqa: ASYNC240  # it blocks nothing
            await one_pass()


async def test_it_is_made_again_and_new_clients_find_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with FakeActive() as active:
        async with serving(active, tmp_path / "jobs.db") as served:
            os.unlink(served.control_path)
            await made_again(tmp_path / "jobs.db.ctl")

            assert (await read_status(served.control_path)).epoch == 3

    assert f"{served.control_path} was removed" in caplog.text
    assert os.listdir(tmp_path) == []


async def test_that_of_the_next_server_is_not_replaced(tmp_path: Path) -> None:
    with FakeActive() as active:
        left = ControlSocket(lambda: Control(active), f"{tmp_path}/jobs.db", lambda: True)
        left.open()
        os.unlink(tmp_path / "jobs.db.ctl")
        for _ in range(10):
            await one_pass()

        assert os.listdir(tmp_path) == []
        await left.close()


@pytest.mark.parametrize("way", ["close", "leave"])
async def test_a_socket_that_was_closed_is_not_made_again(tmp_path: Path, way: str) -> None:
    with FakeActive() as active:
        async with serving(active, tmp_path / "jobs.db") as served:
            served.socket.leave() if way == "leave" else await served.socket.close()
            (tmp_path / "jobs.db.ctl").unlink(missing_ok=True)
            for _ in range(10):
                await one_pass()

            assert os.listdir(tmp_path) == []


async def test_a_directory_that_is_gone_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "data").mkdir()
    with FakeActive() as active:
        async with serving(active, tmp_path / "data" / "jobs.db"):
            os.rename(tmp_path / "data", tmp_path / "moved")
            for _ in range(10):
                await one_pass()

    assert caplog.text.count("cannot be made again") == 1
