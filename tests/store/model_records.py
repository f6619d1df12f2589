"""What the model keeps of ended runs and of attempts' outputs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from schedo.core import limits
from schedo.core.changes import Changes
from schedo.core.leases import CapturedOutput
from schedo.core.run_history import NO_RUNS, EndedRun, LastRun, RunHistory
from schedo.core.states import State


def add_runs(
    histories: dict[int, RunHistory], schedules: Collection[int], changes: Changes
) -> None:
    for run in changes.ended_runs:
        if run.schedule_id in schedules:
            _add_run(histories, run)


def _add_run(histories: dict[int, RunHistory], run: EndedRun) -> None:
    history = histories.get(run.schedule_id, NO_RUNS)
    last = LastRun(run.job_id, run.state, run.ended_at, run.duration_us)
    changed: dict[str, Any] = {
        "last_runs": (*history.last_runs, last)[-limits.LAST_RUNS_MAX :],
        run.state.value: getattr(history, run.state.value) + 1,
    }
    if run.state is State.COMPLETED:
        changed |= {"failed_in_row": 0, "last_completed_at": run.ended_at}
    if run.state is State.FAILED:
        changed |= {
            "failed_in_row": history.failed_in_row + 1,
            "last_failed_at": run.ended_at,
            "last_failed_job": run.job_id,
            "last_failure": run.failure,
        }
    histories[run.schedule_id] = msgspec.structs.replace(history, **changed)


def trim(outputs: dict[tuple[int, str], CapturedOutput]) -> None:
    def size(kept: CapturedOutput) -> int:
        return len(kept.head) + len(kept.tail)

    while sum(map(size, outputs.values())) > limits.OUTPUTS_BYTES_MAX:
        oldest = min(attempt for attempt, _ in outputs)
        for key in [key for key in outputs if key[0] == oldest]:
            del outputs[key]
