"""`make bench-compare`: which differences between two commits it reports, and which are noise."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from bench.compare.__main__ import QUICK_ROUNDS, ROUNDS, enough_rounds, report
from bench.compare.judge import (
    NEW,
    Finding,
    Interval,
    Pair,
    Sample,
    Samples,
    alternate,
    compare,
    find_interval,
)

ROWS = ("stream", "drain")
NOISE = 0.05


def machine(seed: int, slowdown: float = 1.0) -> Callable[[Pair, str], Samples]:
    """Return runs of 50 us a job, give or take the noise; "new" drains slower by a factor.

    What else the machine does slows both runs of a pair.
    """
    draw = random.Random(seed)

    def run(pair: Pair, row: str) -> Samples:
        load = draw.uniform(1, 3)
        first, second = (
            Sample(
                50 * load * factor * draw.gauss(1, NOISE),
                80 * load * factor * draw.gauss(1, 3 * NOISE),
            )
            for tree in pair
            for factor in [slowdown if (tree, row) == ("new", "drain") else 1.0]
        )
        return first, second

    return run


def findings(rounds: int, run: Callable[[Pair, str], Samples]) -> list[Finding]:
    return list(compare(alternate(ROWS, rounds, run)))


def changes(found: list[Finding]) -> set[tuple[str, str, str]]:
    return {(each.row, each.measure, each.change) for each in found if each.change}


@pytest.mark.parametrize(("rounds", "slowdown"), [(ROUNDS, 1.1), (QUICK_ROUNDS, 1.25)])
def test_a_planted_slowdown_is_found_in_its_row_alone(rounds: int, slowdown: float) -> None:
    for seed in range(50):
        found = changes(findings(rounds, machine(seed, slowdown)))

        assert ("drain", "cpu", "slower") in found
        assert not any(row == "stream" or change == "faster" for row, _, change in found)


def test_a_commit_that_became_faster_is_reported_as_faster() -> None:
    assert ("drain", "cpu", "faster") in changes(findings(ROUNDS, machine(1, slowdown=0.8)))


def test_the_same_commit_twice_is_not_slower() -> None:
    assert [seed for seed in range(50) if changes(findings(ROUNDS, machine(seed)))] == []


def test_a_change_of_one_percent_is_not_reported_however_quiet_the_machine_is() -> None:
    def run(pair: Pair, row: str) -> Samples:
        first, second = (Sample(100 + (tree == "new"), 100) for tree in pair)
        return first, second

    assert changes(findings(ROUNDS, run)) == set()


def test_neither_a_pair_nor_a_tree_is_always_the_first() -> None:
    order: list[Pair] = []

    def run(pair: Pair, row: str) -> Samples:
        order.append(pair)
        first, second = (Sample(100 + (tree == "new"), 100) for tree in pair)
        return first, second

    rounds = alternate(("stream",), 4, run)

    assert order == [
        *(("old", "old again"), ("old", "new")),
        *(("old", "new"), ("old", "old again")),
        *(("old again", "old"), ("new", "old")),
        *(("new", "old"), ("old again", "old")),
    ]
    assert {each[NEW][1].cpu for each in rounds["stream"]} == {101}


@pytest.mark.parametrize(
    ("count", "left_out"), [(8, 0), (9, 1), (10, 2), (15, 13), (25, 61)]
)  # from tables of Wilcoxon's signed ranks for 0.5 %, two-tailed: 0, 1, 12 and 60
def test_an_interval_leaves_out_the_means_that_are_a_matter_of_chance(
    count: int, left_out: int
) -> None:
    means = sorted((a + b) / 2 for a in range(1, count + 1) for b in range(a, count + 1))

    found = find_interval([float(each) for each in range(count, 0, -1)])

    assert found == Interval(means[left_out], (count + 1) / 2, means[-1 - left_out])


def test_one_odd_run_hardly_moves_an_interval() -> None:
    found = find_interval([10.0, *(1 + each / 100 for each in range(24))])

    assert 1.05 < found.low < found.median < found.high < 1.25


@pytest.mark.parametrize(
    ("slowdown", "code", "last"), [(1.5, 1, "2 slower"), (1, 0, "none slower")]
)
def test_the_exit_code_says_whether_a_row_became_slower(
    slowdown: float, code: int, last: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(findings(ROUNDS, machine(7, slowdown))) == code
    assert capsys.readouterr().out.splitlines()[-1] == last


def test_too_few_rounds_are_refused() -> None:
    with pytest.raises(Exception, match="8 is less than 9"):
        enough_rounds("8")
