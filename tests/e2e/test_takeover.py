"""Servers are killed under load, and the clients' log and the handlers' lines agree afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.e2e.takeover.__main__ import describe
from tests.e2e.takeover.clients import Load
from tests.e2e.takeover.plan import Plan
from tests.e2e.takeover.run import run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_a_server_that_a_supervisor_restarts_keeps_every_promise(tmp_path: Path) -> None:
    plan = Plan(kills=2, seed=1, standby=False, pause_s=0.3)
    outcome = asyncio.run(run(tmp_path, plan))

    assert outcome.findings.violations == [], describe(outcome)
    assert outcome.findings.counts["kill, active"] == 2


def test_a_standby_takes_over_and_keeps_every_promise(tmp_path: Path) -> None:
    plan = Plan(kills=8, seed=2, standby=True, pause_s=0.3)
    outcome = asyncio.run(run(tmp_path, plan))

    assert outcome.findings.violations == [], describe(outcome)
    assert outcome.findings.counts["kill, active"] == 4


def test_processes_that_die_at_points_of_a_takeover_break_no_promise(tmp_path: Path) -> None:
    plan = Plan(kills=4, seed=3, standby=True, failpoints=True, pause_s=0.3)
    outcome = asyncio.run(run(tmp_path, plan))

    assert outcome.findings.violations == [], describe(outcome)


def test_upgrades_keep_every_promise_and_every_request(tmp_path: Path) -> None:
    plan = Plan(upgrades=2, seed=4, pause_s=0.3, rate=50, load=Load(is_long=True))
    outcome = asyncio.run(run(tmp_path, plan))

    assert outcome.findings.violations == [], describe(outcome)
    assert len(outcome.upgrades) == 2
