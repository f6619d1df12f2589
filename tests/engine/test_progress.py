"""The recent progress of running attempts."""

from __future__ import annotations

from schedo.core.model import LeaseKey
from schedo.core.progress import ProgressUpdate
from schedo.core.worker_messages import Progress, ProgressLine
from schedo.engine.progress import ProgressLog

KEY = LeaseKey(7, 1, 1)


def test_only_the_latest_output_is_kept_and_all_other_reports() -> None:
    progress = ProgressLog()

    progress.note(Progress(KEY, ProgressUpdate(10.0, stdout="a", stdout_bytes=1)), 1)
    progress.note(Progress(KEY, ProgressUpdate(message="half")), 2)
    progress.note(Progress(KEY, ProgressUpdate(stdout="ab", stdout_bytes=2)), 3)
    progress.note(Progress(KEY, ProgressUpdate(90.0)), 4)

    assert progress.of(7) == [
        ProgressLine(1, Progress(KEY, ProgressUpdate(10.0))),
        ProgressLine(2, Progress(KEY, ProgressUpdate(message="half"))),
        ProgressLine(3, Progress(KEY, ProgressUpdate(stdout="ab", stdout_bytes=2))),
        ProgressLine(4, Progress(KEY, ProgressUpdate(90.0))),
    ]
