"""The delays between attempts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedo.core import limits
from schedo.core.model import Retry
from schedo.core.retry import PRESETS, delay_us

SECOND = 1_000_000
MIDDLE = 0.5  # the random number without effect on the delay


def seconds(retry: Retry, count: int) -> list[float]:
    return [delay_us(retry, failures, MIDDLE) / SECOND for failures in range(1, count + 1)]


def test_the_default_delay_triples_from_two_seconds_up_to_an_hour() -> None:
    assert seconds(Retry(), 9) == [2, 6, 18, 54, 162, 486, 1_458, 3_600, 3_600]


def test_a_fixed_delay_stays_the_same() -> None:
    assert seconds(Retry(backoff="fixed", initial_us=5 * SECOND), 3) == [5, 5, 5]


def test_the_last_delay_of_a_list_repeats() -> None:
    retry = Retry(backoff="ladder", ladder_us=(SECOND, 10 * SECOND))

    assert seconds(retry, 4) == [1, 10, 10, 10]


def test_an_empty_list_of_delays_does_not_wait() -> None:
    assert delay_us(Retry(backoff="ladder"), 1, MIDDLE) == 0


def test_a_list_of_delays_is_not_cut_at_the_maximum() -> None:
    retry = Retry(backoff="ladder", ladder_us=(90 * SECOND,), max_us=SECOND)

    assert seconds(retry, 1) == [90]


def test_jitter_spreads_a_delay_to_both_sides() -> None:
    retry = Retry(backoff="fixed", initial_us=100 * SECOND, jitter=0.2)

    assert delay_us(retry, 1, 0.0) == 80 * SECOND
    assert delay_us(retry, 1, 0.25) == 90 * SECOND
    assert delay_us(retry, 1, 0.75) == 110 * SECOND


def test_full_jitter_spreads_a_delay_down_to_zero() -> None:
    retry = Retry(backoff="fixed", initial_us=100 * SECOND, jitter=1.0)

    assert delay_us(retry, 1, 0.0) == 0


@given(
    st.integers(1, 10**9),
    st.floats(0, 1e300, allow_nan=False),
    st.integers(0, limits.DURATION_MAX),
    st.floats(0, 1, exclude_max=True),
)
def test_a_delay_does_not_overflow_after_many_failures(
    failures: int, factor: float, initial_us: int, random: float
) -> None:
    retry = Retry(initial_us=initial_us, factor=factor)

    assert 0 <= delay_us(retry, failures, random) <= limits.HOUR * 1.2


def test_a_delay_never_passes_the_longest_duration() -> None:
    retry = Retry(backoff="fixed", initial_us=limits.DURATION_MAX, jitter=1.0)

    assert delay_us(retry, 1, 0.9) == limits.DURATION_MAX


def test_a_delay_before_the_first_failure_is_refused() -> None:
    with pytest.raises(AssertionError):
        delay_us(Retry(), 0, MIDDLE)


def test_the_preset_none_tries_once() -> None:
    assert PRESETS["none"].max_attempts == 1


def test_the_preset_sidekiq_tries_for_sixteen_days() -> None:
    """n^4 + 15 + 15 * (n + 1) seconds after n earlier failures."""
    retry = PRESETS["sidekiq"]
    delays = seconds(retry, 24)

    assert retry.max_attempts == 25
    assert delays[:5] == [30, 46, 76, 156, 346]
    assert delays[-1] == 23**4 + 15 + 15 * 24
    assert sum(delays) // 86_400 == 16


def test_the_preset_webhook_has_the_delays_of_standard_webhooks() -> None:
    retry = PRESETS["webhook"]

    assert retry.max_attempts == 10
    assert seconds(retry, 9) == [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400]
