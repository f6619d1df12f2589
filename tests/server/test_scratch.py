"""The scratch server, which a process runs before it takes a store over."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import pytest

from schedo.engine.engine import Engine
from schedo.protocol import decode, reading
from schedo.server.scratch import run_scratch_server
from tests.passes import one_pass


async def test_all_its_requests_succeed_and_it_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    await run_scratch_server()

    assert [each.getMessage() for each in caplog.records if each.levelname == "WARNING"] == []
    assert os.listdir(tmp_path) == []


async def test_the_decoders_of_a_submit_a_batch_and_a_poll_are_made_then() -> None:
    decode._decoder.cache_clear()
    reading._list_decoder.cache_clear()

    await run_scratch_server()

    assert decode._decoder.cache_info().currsize > 0
    assert reading._list_decoder.cache_info().currsize > 0


async def test_a_scratch_file_that_cannot_be_made_is_only_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")

    await run_scratch_server()

    assert "the warm-up on a scratch file has failed" in caplog.text


async def test_a_warm_up_that_is_cancelled_in_its_last_step_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_stopping, may_stop = asyncio.Event(), asyncio.Event()
    stopped: list[Engine] = []

    async def stop(engine: Engine) -> None:
        is_stopping.set()
        await may_stop.wait()
        await honest(engine)
        stopped.append(engine)

    honest = Engine.stop
    monkeypatch.setattr(Engine, "stop", stop)
    warming = asyncio.create_task(run_scratch_server())
    await is_stopping.wait()
    warming.cancel()
    await one_pass()
    may_stop.set()

    with pytest.raises(asyncio.CancelledError):
        await warming
    assert len(stopped) == 1
