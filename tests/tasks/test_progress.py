"""Progress of running attempts is merged and sent at intervals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from schedo import report_progress
from schedo.core.model import LeaseKey
from schedo.core.progress import ProgressUpdate
from schedo.tasks.progress import ProgressThrottle

KEY = LeaseKey(1, 1, 1)


async def test_updates_of_an_interval_are_merged_and_those_of_ended_attempts_dropped() -> None:
    passed: asyncio.Queue[tuple[LeaseKey, ProgressUpdate]] = asyncio.Queue()
    progress = ProgressThrottle(lambda key, fields: passed.put_nowait((key, fields)))
    other = LeaseKey(2, 1, 1)

    for percent in range(5):
        progress.report(KEY, ProgressUpdate(float(percent)))
    progress.report(other, ProgressUpdate(1.0))
    asyncio.get_running_loop().call_soon(progress.forget, other)

    async with asyncio.timeout(10):
        assert await passed.get() == (KEY, ProgressUpdate(4.0))
    assert passed.empty()
    progress.close()


async def test_reports_that_the_loop_has_no_time_for_take_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, calls = asyncio.get_running_loop(), []
    monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *call: calls.append(call))
    progress = ProgressThrottle(lambda key, update: None)

    for percent in range(100):
        progress.report(KEY, ProgressUpdate(float(percent)))

    assert progress.updates == {KEY: ProgressUpdate(99.0)}
    assert len(calls) == 1


def test_outside_of_a_worker_progress_is_ignored() -> None:
    report_progress(50, "half")


@pytest.mark.parametrize("percent", [-1, 101, float("nan")])
def test_a_percentage_outside_of_0_to_100_is_refused(percent: float) -> None:
    with pytest.raises(ValueError, match="percent must be 0 to 100"):
        report_progress(percent)


@pytest.mark.parametrize("percent", ["half", [50], 1j, object()])
def test_a_percentage_that_is_no_number_is_refused(percent: object) -> None:
    with pytest.raises(TypeError):
        report_progress(percent)  # type: ignore[arg-type]


@pytest.mark.parametrize("fields", [{"message": b"half"}, {"log": 1}], ids=["bytes", "number"])
def test_progress_with_a_message_or_log_that_is_no_string_is_refused(
    fields: dict[str, Any],
) -> None:
    with pytest.raises(TypeError, match="must be a str"):
        report_progress(50, **fields)
