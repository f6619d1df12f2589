"""A store that is away does not fill the log with one line for each request."""

from __future__ import annotations

from typing import Any

import pytest

from schedo.errors import StoreError
from schedo.web import refusal_log
from schedo.web.refusal_log import LINES_MAX, REASONS_MAX, RefusalLog
from tests.passes import until

AWAY = StoreError("the database does not respond")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def fail(refusals: RefusalLog, count: int) -> None:
    for number in range(count):
        refusals.note(f"r{number}", AWAY)


async def test_a_reason_gets_a_few_lines_and_then_a_count(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusal_log, "WINDOW_S", 0.0)
    refusals = RefusalLog()

    fail(refusals, LINES_MAX + 40)
    assert lines(caplog) == [f"request r{number}: {AWAY}" for number in range(LINES_MAX)]

    await until(lambda: len(caplog.records) > LINES_MAX)
    assert lines(caplog)[-1] == f"40 more requests failed within 0 s: {AWAY}"


async def test_another_reason_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    refusals = RefusalLog()
    fail(refusals, LINES_MAX + 1)

    refusals.note("other", StoreError("the disk is full"))

    assert lines(caplog)[-1] == "request other: the disk is full"


async def test_a_new_window_has_lines_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusal_log, "WINDOW_S", 0.0)
    refusals = RefusalLog()
    fail(refusals, LINES_MAX + 1)
    await until(lambda: len(caplog.records) > LINES_MAX)

    refusals.note("later", AWAY)

    assert lines(caplog)[-1] == f"request later: {AWAY}"


async def test_reasons_without_end_share_lines(caplog: pytest.LogCaptureFixture) -> None:
    refusals = RefusalLog()

    for number in range(10 * REASONS_MAX):
        refusals.note("r", StoreError(f"reason {number}"))

    assert len(caplog.records) == REASONS_MAX + LINES_MAX


async def test_the_server_counts_the_requests_that_fail(
    caplog: pytest.LogCaptureFixture, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find_nothing(*arguments: object, **fields: object) -> None:
        raise AWAY

    monkeypatch.setattr(world.engine, "get", find_nothing)

    for _ in range(LINES_MAX + 3):
        assert (await world.get("/v1/jobs/0CR5K6F8DEA00")).status == 503

    assert len([line for line in lines(caplog) if str(AWAY) in line]) == LINES_MAX
