"""Timers: soonest first, lazy cancelling, and no lost entry when several threads arm them."""

from __future__ import annotations

from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedo.core.timers import Timers
from tests.core.builders import DAY, HOUR, MINUTE, SECOND, T0


def armed(*entries: tuple[int, int]) -> Timers:
    timers = Timers()
    for at, key in entries:
        timers.arm(key, at)
    return timers


def drained(timers: Timers) -> list[tuple[int, int]]:
    return timers.pop_due(1 << 62, 1 << 30)


def test_an_empty_set_of_timers_has_no_first_and_no_last() -> None:
    timers = Timers()

    assert timers.first() is None
    assert timers.last() is None
    assert timers.pop_due(DAY, 10) == []


def test_entries_come_out_soonest_first_across_buckets() -> None:
    timers = armed((DAY, 1), (SECOND, 2), (HOUR, 3), (MINUTE, 4), (T0, 5), (-SECOND, 6))

    assert drained(timers) == [
        (-1_000_000, 6),
        (0, 5),
        (1_000_000, 2),
        (60_000_000, 4),
        (3_600_000_000, 3),
        (86_400_000_000, 1),
    ]


def test_equal_instants_come_out_by_key() -> None:
    timers = armed((SECOND, 3), (SECOND, 1), (SECOND, 2))

    assert drained(timers) == [(SECOND, 1), (SECOND, 2), (SECOND, 3)]


def test_only_due_entries_come_out_and_no_more_than_the_limit() -> None:
    timers = armed((10, 1), (20, 2), (30, 3), (40, 4))

    assert timers.pop_due(30, 2) == [(10, 1), (20, 2)]
    assert timers.pop_due(29, 10) == []
    assert timers.pop_due(30, 10) == [(30, 3)]
    assert len(timers) == 1


def test_arming_again_moves_the_entry() -> None:
    timers = armed((10, 1), (20, 2))

    timers.arm(1, 30)

    assert len(timers) == 2
    assert drained(timers) == [(20, 2), (30, 1)]


def test_arming_at_the_same_instant_changes_nothing() -> None:
    timers = armed((10, 1), (10, 1))

    assert drained(timers) == [(10, 1)]


def test_an_entry_moved_away_and_back_comes_out_once() -> None:
    timers = armed((10, 1))

    timers.arm(1, 20)
    timers.arm(1, 10)

    assert drained(timers) == [(10, 1)]


def test_a_cancelled_entry_never_comes_out() -> None:
    timers = armed((10, 1), (20, 2), (HOUR, 3))

    assert timers.cancel(1)
    assert timers.cancel(3)
    assert not timers.cancel(3)

    assert 1 not in timers
    assert 2 in timers
    assert drained(timers) == [(20, 2)]


def test_an_entry_can_be_armed_before_the_bucket_that_is_already_open() -> None:
    timers = armed((DAY, 1))

    assert timers.first() == (DAY, 1)  # the far bucket is the current one now
    timers.arm(2, SECOND)
    timers.arm(3, 2 * DAY)

    assert drained(timers) == [(SECOND, 2), (DAY, 1), (2 * DAY, 3)]


def test_new_entries_that_are_armed_together_come_out_in_order() -> None:
    timers = Timers()
    timers.arm(1, T0)
    timers.arm(2, T0)
    assert timers.pop_due(T0, 1) == [(T0, 1)]
    timers.cancel(2)

    timers.arm_new([(T0 - 1, 3), (T0, 2), (T0 + HOUR, 4), (T0 + HOUR, 5)])

    assert timers.pop_due(T0 + DAY, 9) == [
        *((T0 - 1, 3), (T0, 2)),
        *((T0 + HOUR, 4), (T0 + HOUR, 5)),
    ]
    assert timers.first() is None


def test_stale_entries_do_not_outnumber_the_live_ones() -> None:
    timers = armed(*((HOUR + key, key) for key in range(100)))

    for moved in range(1, 50):
        for key in range(100):
            timers.arm(key, moved * HOUR + key)

    held = (
        len(timers._queue)
        + len(timers._heap)
        + sum(len(bucket) for bucket in timers._buckets.values())
    )
    assert len(timers) == 100
    assert held <= 2 * 100 + 1
    assert timers._stale == held - 100


def test_a_sweep_keeps_distant_entries_in_order() -> None:
    timers = armed(*((key * MINUTE, key) for key in range(200)))
    assert timers.first() == (0, 0)

    for key in range(0, 200, 2):
        timers.cancel(key)
    for key in range(1, 180, 2):
        timers.cancel(key)

    assert drained(timers) == [(key * MINUTE, key) for key in range(181, 200, 2)]


def test_a_trim_keeps_the_first_entries_and_returns_the_others_in_order() -> None:
    timers = armed((30, 3), (10, 1), (HOUR, 5), (20, 2), (DAY, 4))

    assert timers.keep_first(2) == [(30, 3), (HOUR, 5), (DAY, 4)]
    assert timers.last() == (20, 2)
    assert drained(timers) == [(10, 1), (20, 2)]


def test_several_threads_can_arm_and_cancel_at_once() -> None:
    timers = Timers()

    def arm_some(thread: int) -> None:
        for number in range(1_000):
            key = thread * 1_000 + number
            timers.arm(key, HOUR - key)
            timers.arm(key, key * SECOND)
            if number % 2:
                timers.cancel(key)

    threads = [Thread(target=arm_some, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert drained(timers) == [(key * SECOND, key) for key in range(0, 4_000, 2)]


# A few keys and instants of very different size, so that entries meet in near and in far buckets.
KEYS = st.integers(0, 9)
INSTANTS = st.one_of(st.integers(-5, 5), st.integers(-5, 5).map(lambda n: n * HOUR))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arm"), KEYS, INSTANTS),
        st.tuples(st.just("cancel"), KEYS),
        st.tuples(st.just("due"), INSTANTS, st.integers(0, 4)),
        st.tuples(st.just("keep"), st.integers(0, 6)),
    )
)


@pytest.mark.parametrize("sorted_max", [0, 16_384], ids=["large buckets", "small buckets"])
@given(STEPS)
def test_timers_behave_like_a_sorted_list(
    sorted_max: int, steps: list[tuple[str, int, int]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("schedo.core.timers._SORTED_MAX", sorted_max)
        _compare_with_a_list(steps)


def _compare_with_a_list(steps: list[tuple[str, int, int]]) -> None:
    timers = Timers()
    model: dict[int, int] = {}

    for verb, *arguments in steps:
        ordered = sorted((at, key) for key, at in model.items())
        match verb, arguments:
            case "arm", [key, at]:
                timers.arm(key, at)
                model[key] = at
                continue
            case "cancel", [key]:
                assert timers.cancel(key) == (model.pop(key, None) is not None)
                continue
            case "due", [now, limit]:
                gone = [entry for entry in ordered if entry[0] <= now][:limit]
                assert timers.pop_due(now, limit) == gone
            case "keep", [count]:
                gone = ordered[count:]
                assert timers.keep_first(count) == gone
        for _, key in gone:
            del model[key]

    assert len(timers) == len(model)
    assert timers.last() == max(((at, key) for key, at in model.items()), default=None)
    assert drained(timers) == sorted((at, key) for key, at in model.items())
