"""Servers are killed under load, and the clients' log and the handlers' lines agree afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.e2e.takeover.__main__ import describe
from tests.e2e.takeover.run import Plan, run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_a_server_that_a_supervisor_restarts_keeps_every_promise(tmp_path: Path) -> None:
    plan = Plan(kills=3, seed=1, standby=False, pause_s=0.5)
    outcome = asyncio.run(run(tmp_path, plan))

    assert outcome.findings.violations == [], describe(outcome)
    assert outcome.findings.counts["kill, active"] == 3


def test_a_standby_takes_over_and_keeps_every_promise(tmp_path: Path) -> None:
    plan = Plan(kills=12, seed=2, standby=True, pause_s=0.4)
    outcome = asyncio.run(run(tmp_path, plan))

    assert outcome.findings.violations == [], describe(outcome)
    assert outcome.findings.counts["kill, active"] == 6


def test_processes_that_die_at_points_of_a_takeover_break_no_promise(tmp_path: Path) -> None:
    plan = Plan(kills=5, seed=3, standby=True, failpoints=True, pause_s=0.5)
    outcome = asyncio.run(run(tmp_path, plan))

    assert outcome.findings.violations == [], describe(outcome)


def test_upgrades_keep_every_promise_and_every_request(tmp_path: Path) -> None:
    plan = Plan(upgrades=2, seed=4, pause_s=0.5, rate=50)
    outcome = asyncio.run(run(tmp_path, plan))

    assert outcome.findings.violations == [], describe(outcome)
    assert len(outcome.upgrades) == 2
