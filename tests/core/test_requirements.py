"""Requirements: conditions on labels, and preferences."""

from __future__ import annotations

import pytest

from schedo.core.requirements import Condition, Op, Preference, Requirements, render_amount


@pytest.mark.parametrize(
    ("found", "op", "values", "holds"),
    [
        ("eu", "=", ("eu",), True),
        ("eu", "=", ("us",), False),
        ("4", "=", ("4.0",), True),
        ("1.50", "=", ("15e-1",), True),
        ("nan", "=", ("NaN",), False),
        ("5541083526183453921", "=", ("5541083526183453920",), False),
        ("5541083526183453921", ">", ("5541083526183453920",), True),
        ("1_2", "=", ("12",), False),
        (None, "=", ("eu",), False),
        ("eu", "!=", ("us",), True),
        ("eu", "!=", ("eu",), False),
        (None, "!=", ("eu",), True),
        ("80", ">", ("9",), True),
        ("80", ">", ("80",), False),
        ("80", ">=", ("80",), True),
        ("7.5", "<", ("8",), True),
        ("8", "<=", ("8",), True),
        ("much", ">", ("8",), False),
        ("9", ">", ("much",), False),
        (None, "<", ("8",), False),
        ("h100", "in", ("a100", "h100"), True),
        ("t4", "in", ("a100", "h100"), False),
        (None, "in", ("a100",), False),
        ("t4", "not in", ("a100", "h100"), True),
        ("a100", "not in", ("a100", "h100"), False),
        (None, "not in", ("a100",), True),
    ],
)
def test_a_condition_on_a_label_is_met_or_not(
    found: str | None, op: Op, values: tuple[str, ...], holds: bool
) -> None:
    labels = {} if found is None else {"it": found}

    assert Condition("it", op, values).holds(labels) is holds


def test_the_first_preference_that_a_worker_meets_counts() -> None:
    lhr = Preference((Condition("zone", "=", ("lhr",)),), 3.0)
    big = Preference((Condition("cpus", ">", ("8",)),), 2.0)
    requirements = Requirements(prefer=(lhr, big, Preference((), 1.0)))

    assert requirements.preference_score({"zone": "lhr", "cpus": "16"}) == 3.0
    assert requirements.preference_score({"zone": "ams", "cpus": "16"}) == 2.0
    assert requirements.preference_score({}) == 1.0
    assert Requirements().preference_score({"zone": "lhr"}) == 0.0


def test_amounts_and_conditions_are_shown_in_the_form_of_a_request() -> None:
    assert [render_amount(each) for each in (500, 3_000, 1_250)] == ["0.5", "3", "1.25"]
    assert str(Condition("gpu", "in", ("a100", "h100"))) == "gpu in a100, h100"
