"""Sketches: how exact quantiles are, that sketches add up, and how they are stored."""

from __future__ import annotations

from math import ceil
from random import Random

import pytest

from schedo.core.limits import DAY, HOUR, SECOND
from schedo.core.sketch import (
    BUCKETS,
    FIRST_BOUND_US,
    RELATIVE_ERROR,
    Sketch,
    add_sketch,
    add_values,
    find_bucket,
    find_quantiles,
    pack_sketch,
    unpack_sketch,
)

SHARES = (0.1, 0.5, 0.9, 0.99, 1.0)
DRAWS = {
    "even": lambda random: random.uniform(FIRST_BOUND_US, SECOND),
    "exponential": lambda random: FIRST_BOUND_US + random.expovariate(1 / HOUR),
    "two peaks": lambda random: random.choice([150, HOUR]) * random.uniform(1, 1.2),
}


def sketch(*values: int) -> Sketch:
    found: Sketch = {}
    add_values(found, [*values])
    return found


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@pytest.mark.parametrize("count", [1, 2, 10, 999])
def test_quantiles_are_as_exact_as_promised(draw: object, count: int) -> None:
    random = Random(count)
    values = sorted(int(draw(random)) for _ in range(count))  # type: ignore[operator]

    found = find_quantiles(sketch(*values), SHARES)

    expected = [values[max(1, ceil(share * count)) - 1] for share in SHARES]
    for value, exact in zip(found, expected, strict=True):
        assert abs(value - exact) <= RELATIVE_ERROR * exact + 0.5  # and the rounding


def test_a_sum_of_sketches_is_the_sketch_of_all_values() -> None:
    random = Random(1)
    values = [random.randrange(DAY) for _ in range(500)]
    total: Sketch = {}

    for first in range(0, 500, 50):
        add_sketch(total, sketch(*values[first : first + 50]))

    assert total == sketch(*values)


def test_what_is_too_short_or_too_long_has_a_bucket() -> None:
    assert find_bucket(-5) == find_bucket(0) == find_bucket(FIRST_BOUND_US) == 0
    assert find_bucket(DAY) < BUCKETS - 1
    assert find_bucket(100 * DAY) == BUCKETS - 1
    assert find_quantiles(sketch(0, 100 * DAY, 200 * DAY), [0.1, 1]) == [
        FIRST_BOUND_US,
        pytest.approx(DAY, rel=2 * RELATIVE_ERROR),
    ]


def test_a_stored_sketch_is_the_same() -> None:
    for each in (sketch(), sketch(0), sketch(5, SECOND, SECOND, 3 * DAY)):
        assert unpack_sketch(pack_sketch(each)) == each
