"""The thresholds of the garbage collector in a process that runs jobs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from schedo import Schedo
from schedo.garbage import collect_seldom


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((700, 10, 10), (10_000, 10, 10)),
        ((2_000, 5, 20), (10_000, 5, 20)),
        ((50_000, 5, 20), (50_000, 5, 20)),
        ((0, 10, 10), (0, 10, 10)),
    ],
    ids=["python's own", "lower", "higher", "off"],
)
def test_a_low_threshold_is_raised_and_a_high_one_stays(
    before: tuple[int, int, int], after: tuple[int, int, int]
) -> None:
    gc.set_threshold(*before)

    collect_seldom()

    assert gc.get_threshold() == after


async def test_an_embedded_application_collects_seldom(tmp_path: Path) -> None:
    gc.set_threshold(700, 10, 10)

    async with Schedo(tmp_path / "jobs.db"):
        assert gc.get_threshold()[0] == 10_000
