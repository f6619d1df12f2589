"""`make bench-compare`: which differences between two commits it reports, and which are noise."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from bench.compare.__main__ import enough_rounds, report
from bench.compare.judge import Finding, Interval, Sample, alternate, compare, find_interval

ROWS = ("stream", "drain")
NOISE = 0.05


def machine(seed: int, slowdown: float = 1.0) -> Callable[[str, str], Sample]:
    """Return a run of 50 us a job, give or take the noise; "new" drains slower by a factor."""
    draw = random.Random(seed)

    def run(tree: str, row: str) -> Sample:
        factor = slowdown if (tree, row) == ("new", "drain") else 1.0
        return Sample(50 * factor * draw.gauss(1, NOISE), 80 * factor * draw.gauss(1, 3 * NOISE))

    return run


def findings(rounds: int, run: Callable[[str, str], Sample]) -> list[Finding]:
    return list(compare(alternate(ROWS, rounds, run)))


def changes(found: list[Finding]) -> set[tuple[str, str, str]]:
    return {(each.row, each.measure, each.change) for each in found if each.change}


@pytest.mark.parametrize(("rounds", "slowdown"), [(15, 1.15), (7, 1.3)])
def test_a_planted_slowdown_is_found_in_its_row_alone(rounds: int, slowdown: float) -> None:
    for seed in range(50):
        found = changes(findings(rounds, machine(seed, slowdown)))

        assert ("drain", "cpu", "slower") in found
        assert not any(row == "stream" or change == "faster" for row, _, change in found)


def test_a_commit_that_became_faster_is_reported_as_faster() -> None:
    assert ("drain", "cpu", "faster") in changes(findings(15, machine(1, slowdown=0.8)))


def test_the_same_commit_twice_is_not_slower() -> None:
    assert [seed for seed in range(50) if changes(findings(15, machine(seed)))] == []


def test_a_change_of_one_percent_is_not_reported_however_quiet_the_machine_is() -> None:
    def run(tree: str, row: str) -> Sample:
        return Sample(101, 101) if tree == "new" else Sample(100, 100)

    assert changes(findings(15, run)) == set()


def test_each_tree_is_the_first_of_a_round_in_turn() -> None:
    order: list[str] = []

    def run(tree: str, row: str) -> Sample:
        order.append(tree)
        return Sample(1, 1)

    alternate(("stream",), 3, run)

    assert order == [
        *("old", "new", "old again"),
        *("new", "old again", "old"),
        *("old again", "old", "new"),
    ]


def test_the_interval_of_15_values_leaves_out_three_on_each_side() -> None:
    values = [15.0, *(float(each) for each in range(1, 15))]

    assert find_interval(values) == Interval(low=4, median=8, high=12)


def test_the_interval_of_five_values_spans_them_all() -> None:
    assert find_interval([3.0, 1.0, 2.0, 5.0, 4.0]) == Interval(low=1, median=3, high=5)


@pytest.mark.parametrize(
    ("slowdown", "code", "last"), [(1.5, 1, "2 slower"), (1, 0, "none slower")]
)
def test_the_exit_code_says_whether_a_row_became_slower(
    slowdown: float, code: int, last: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(findings(15, machine(7, slowdown))) == code
    assert capsys.readouterr().out.splitlines()[-1] == last


def test_too_few_rounds_are_refused() -> None:
    with pytest.raises(Exception, match="4 is less than 5"):
        enough_rounds("4")
