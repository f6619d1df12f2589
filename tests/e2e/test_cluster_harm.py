"""A cluster is harmed under load, and the clients' log and the handlers' lines agree afterwards.

And all its servers restart in turn, and every request is answered.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.e2e.cluster.__main__ import describe
from tests.e2e.cluster.rolling import roll
from tests.e2e.cluster.run import Plan, run
from tests.postgres import running_server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_a_cluster_keeps_every_promise_while_its_servers_die_and_are_cut_off(
    tmp_path: Path,
) -> None:
    harm = ("kill", "leave", "terminate", "cut-store", "reset-commit")
    plan = Plan(servers=2, nemeses=harm, count=len(harm), seed=1, pause_s=0.3)
    with running_server() as postgres:
        outcome = asyncio.run(run(tmp_path, postgres, plan))

    assert outcome.findings.violations == [], describe(outcome)
    assert outcome.findings.counts["nemesis kill"] == 1


def test_a_rolling_restart_of_a_cluster_answers_every_request(tmp_path: Path) -> None:
    with running_server() as postgres:
        rolled = asyncio.run(roll(tmp_path, postgres, upgrades=1, rate=20, servers=2))

    assert rolled.failed == {}
    assert not any(rolled.codes)
    assert rolled.counts["answered submit"] > 0
