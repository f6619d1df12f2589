"""Progress updates are merged, and cut to the limits."""

from __future__ import annotations

import pytest

from schedo.core.progress import ProgressUpdate


def test_a_later_report_replaces_percent_and_message_and_extends_the_log() -> None:
    said = (
        ProgressUpdate(10.0, "first", "one")
        .then(ProgressUpdate(log="two"))
        .then(ProgressUpdate(40.0, stdout="half"))
    )

    assert said == ProgressUpdate(40.0, "first", "one\ntwo", "half")


def test_each_stream_keeps_its_latest_end_with_its_length() -> None:
    merged = ProgressUpdate(stdout="a", stdout_bytes=1, stderr="b", stderr_bytes=1).then(
        ProgressUpdate(stdout="ac", stdout_bytes=2)
    )

    assert merged == ProgressUpdate(stdout="ac", stdout_bytes=2, stderr="b", stderr_bytes=1)
    assert merged.has_output
    assert merged.without_output() == ProgressUpdate()


def test_the_log_of_a_progress_report_is_bounded() -> None:
    said = ProgressUpdate(log="a" * 16_384).then(ProgressUpdate(log="b"))

    assert said.log is not None
    assert (len(said.log), said.log[-2:]) == (16_384, "\nb")


@pytest.mark.parametrize(
    ("percent", "kept"),
    [(0, 0), (100.0, 100.0), (-1, None), (10**30, None), (float("nan"), None), (None, None)],
)
def test_progress_out_of_range_is_omitted(percent: float | None, kept: float | None) -> None:
    assert ProgressUpdate(percent, "on its way").fit() == ProgressUpdate(kept, "on its way")
