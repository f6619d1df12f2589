"""An unknown name is compared with the known ones."""

from __future__ import annotations

from schedo.suggestions import suggest


def test_the_most_similar_name_is_suggested() -> None:
    assert suggest("retrys", ["queue", "retry", "expires_in"]) == "; did you mean retry?"


def test_nothing_is_suggested_for_a_name_that_resembles_none() -> None:
    assert suggest("colour", ["queue", "retry"]) == ""
    assert suggest("x", []) == ""


def test_a_long_name_is_cut_before_it_is_compared() -> None:
    assert suggest("retry" * 100_000, ["retry"]) == ""


def test_the_name_that_another_scheduler_has_for_a_field_counts_before_a_similar_one() -> None:
    assert suggest("timezone", ["timeout", "tz"]) == "; did you mean tz?"
    assert suggest("timzone", ["timeout", "tz"]) == "; did you mean tz?"
    assert suggest("timezone", ["timeout"]) == "; did you mean timeout?"
