"""The warning about a task that no connected worker can run."""

from __future__ import annotations

import pytest

from schedo.engine.unserved_log import WARN_AFTER_S, UnservedLog


def test_a_task_is_named_once_when_its_jobs_have_waited_for_some_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unserved = UnservedLog()

    unserved.note({"mial": 2}, 100.0)
    unserved.note({"mial": 3}, 100.0 + WARN_AFTER_S - 0.1)
    assert caplog.messages == []

    unserved.note({"mial": 4}, 100.0 + WARN_AFTER_S)
    unserved.note({"mial": 5}, 100.0 + WARN_AFTER_S + 1)
    assert caplog.messages == [
        "no connected worker can run task mial; its due jobs: at least 4;"
        " schedo jobs why ID says what is missing"
    ]


def test_a_task_that_a_worker_served_meanwhile_is_named_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unserved = UnservedLog()

    for start in (0.0, 100.0):
        unserved.note({"mail": 1}, start)
        unserved.note({"mail": 1}, start + WARN_AFTER_S)
        unserved.note({}, start + WARN_AFTER_S + 1)

    assert len(caplog.messages) == 2
