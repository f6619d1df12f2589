"""A minute of several servers as one."""

from __future__ import annotations

import msgspec

from schedo.core.minutes import StoredMinute, merge_minutes
from schedo.core.series import FIGURE_MAX


def encode(minute: StoredMinute) -> str:
    return msgspec.json.encode(minute).decode()


ONE = StoredMinute(
    {"started": 2, "failed": 1},
    {"due": 4, "loop_lag_us": 9},
    {"timer": [1, 0]},
    {"mail": {"submitted": 1, "due": 2, "delay_p99_us": 70}, "own": {"started": 1}},
)
OTHER = StoredMinute(
    {"started": 3, "commits": FIGURE_MAX},
    {"due": 1, "loop_lag_us": 5, "slots": 8},
    {"timer": [2, 5], "submit": [1, 1]},
    {"mail": {"submitted": 4, "due": 3, "delay_p99_us": 20}},
)


def test_counts_are_added_and_of_gauges_those_of_which_each_server_has_a_part() -> None:
    found = msgspec.json.decode(merge_minutes([encode(ONE), encode(OTHER)]), type=StoredMinute)

    assert found.counts == {"started": 5, "failed": 1, "commits": FIGURE_MAX}
    assert found.gauges == {"due": 5, "loop_lag_us": 9, "slots": 8}
    assert found.lateness == {"submit": [1, 1], "timer": [3, 5]}
    assert found.queues == {
        "mail": {"submitted": 5, "due": 5, "delay_p99_us": 70},
        "own": {"started": 1},
    }


def test_a_sum_is_no_larger_than_a_figure_can_be() -> None:
    found = msgspec.json.decode(merge_minutes([encode(OTHER)] * 2), type=StoredMinute)

    assert found.counts["commits"] == FIGURE_MAX
