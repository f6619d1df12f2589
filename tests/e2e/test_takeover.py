"""Servers are killed under load, and the clients' log and the handlers' lines agree afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.e2e.takeover.__main__ import describe
from tests.e2e.takeover.run import Plan, run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_a_server_that_a_supervisor_restarts_keeps_every_promise(tmp_path: Path) -> None:
    plan = Plan(kills=5, seed=1, standby=False, pause_s=0.5)
    outcome = asyncio.run(run(tmp_path, plan))

    assert outcome.findings.violations == [], describe(outcome)
    assert outcome.findings.counts["kills"] == 5
