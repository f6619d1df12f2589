"""A small simulation: twelve worlds with faults, and one seed always gives one history.

`make sim SEEDS=2000` runs more worlds, and `make sim SEED=7` replays one and prints its trace.
"""

from __future__ import annotations

import pytest

from tests.sim.checkers import check
from tests.sim.disk import Faults
from tests.sim.plan import STARTS, STORES, Plan, plan_of
from tests.sim.simulator import run
from tests.sim.trace import digest


@pytest.mark.parametrize("seed", range(12))
def test_every_invariant_holds_in_a_simulated_run(seed: int) -> None:
    findings = check(run(seed))

    assert not findings, f"seed {seed}; replay it: make sim SEED={seed}\n" + "\n".join(findings)


def test_the_default_seeds_cover_both_stores() -> None:
    assert {plan_of(seed).store for seed in range(12)} == set(STORES)


SHORT = Plan(
    start=STARTS[1],
    minutes=2,
    window=2,
    faults=Faults(commit_fails=0.05, load_fails=0.01, dies=0.002),
    crash_every_s=60.0,
    step_every_s=60.0,
    action_every_s=1.0,
)


def test_the_same_seed_gives_the_same_history() -> None:
    assert digest(run(6, SHORT)) == digest(run(6, SHORT))


def test_another_seed_gives_another_history() -> None:
    assert digest(run(6, SHORT)) != digest(run(7, SHORT))
