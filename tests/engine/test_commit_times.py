"""When a job was durable, by the commits."""

from __future__ import annotations

from schedo.engine.commit_times import COMMITS_KEPT, CommitTimes


def test_the_first_commit_with_the_id_made_the_job_durable() -> None:
    times = CommitTimes()
    times.begin(10)
    times.note(12, 100)
    times.note(12, 200)
    times.note(15, 300)

    assert [times.find(job_id) for job_id in (10, 11, 12, 13, 15, 16)] == [
        *(None, 100, 100, 300, 300, None)
    ]


def test_the_latest_commits_are_kept() -> None:
    times = CommitTimes()
    for number in range(1, 2 * COMMITS_KEPT + 1):
        times.note(number, 1_000 + number)

    assert times.find(COMMITS_KEPT) is None
    assert times.find(COMMITS_KEPT + 1) == 1_000 + COMMITS_KEPT + 1
    assert times.find(2 * COMMITS_KEPT) == 1_000 + 2 * COMMITS_KEPT
