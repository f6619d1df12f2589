"""Cron: find a hundred consecutive fires of simple and difficult expressions and zones."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from schedo.core.cron import next_fire, parse_cron

START = 1_795_172_645_000_000  # 2026-11-20T11:04:05Z
COUNT = 100

CASES = {
    "every second": ("* * * * * *", "UTC"),
    "every 5 minutes": ("*/5 * * * *", "UTC"),
    "weekdays at 9 in Paris": ("0 9 * * mon-fri", "Europe/Paris"),
    "in the hour that summer time skips": ("30 2 * * *", "Europe/Paris"),
    "29 February": ("0 0 29 2 *", "UTC"),
}


def walk(expression: str, zone: str) -> int:
    at: int | None = START
    for _ in range(COUNT):
        assert at is not None, "the expression always has a next fire"
        at = next_fire(expression, zone, at, "after", "first") or START
    return at or 0


@pytest.mark.parametrize(("expression", "zone"), CASES.values(), ids=list(CASES))
@pytest.mark.benchmark(group="cron: 100 next fires")
def test_next_fire(benchmark: BenchmarkFixture, expression: str, zone: str) -> None:
    normalized = parse_cron(expression, seed="bench").normalized

    assert benchmark(walk, normalized, zone) > 0


@pytest.mark.parametrize("expression", [case[0] for case in CASES.values()])
@pytest.mark.benchmark(group="cron: parse")
def test_parse(benchmark: BenchmarkFixture, expression: str) -> None:
    benchmark(parse_cron, expression, seed="bench")
