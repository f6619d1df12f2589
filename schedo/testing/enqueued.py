"""The search for enqueued jobs, and the text of the assertion that finds none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from schedo.app.tasks import Task
from schedo.tasks.arguments import encode_custom
from schedo.tasks.backend import Record

_LISTED_MAX = 20


def check_enqueued(
    jobs: Sequence[Record],
    task: Task[..., Any, Any] | str,
    arguments: Mapping[str, Any],
    queue: str | None,
    count: int | None,
) -> list[Record]:
    """Return the jobs of the task with these arguments.

    Raise AssertionError unless there are `count` of them; None: at least one.
    """
    __tracebackhide__ = True  # pytest shows the test's own line
    name = task if isinstance(task, str) else task.name
    if isinstance(task, Task):
        task.spec.arguments.check_names(arguments)
    wanted = msgspec.to_builtins(dict(arguments), enc_hook=encode_custom, str_keys=True)
    found = [job for job in jobs if not _differences(job, name, wanted, queue)]
    if len(found) == count or (count is None and found):
        return found
    raise AssertionError(_explain(jobs, name, wanted, queue, count, len(found)))


def _differences(job: Record, task: str, wanted: Mapping[str, Any], queue: str | None) -> list[str]:
    """Return in what the job differs; the task alone if that is another one."""
    if job["task"] != task:
        return ["task"]
    payload = job.get("payload") or {}
    differences = [
        name for name, value in wanted.items() if name not in payload or payload[name] != value
    ]
    return differences + (["queue"] if queue not in (None, job["queue"]) else [])


def _explain(
    jobs: Sequence[Record],
    task: str,
    wanted: Mapping[str, Any],
    queue: str | None,
    count: int | None,
    found: int,
) -> str:
    number = "no job" if found == 0 else f"{found} jobs" if found > 1 else "1 job"
    expected = "at least 1" if count is None else str(count)
    where = "".join(f" {name}={_write(value)}" for name, value in wanted.items())
    lines = [
        f"{number} of task {task}{' with' + where if where else ''}"
        f"{f' in queue {queue}' if queue else ''} was enqueued, expected {expected}"
    ]
    # Jobs of the same task first, then those that differ least.
    ranked = sorted(
        jobs, key=lambda job: (job["task"] != task, len(_differences(job, task, wanted, queue)))
    )
    lines.append("the jobs of this test:" if jobs else "this test has enqueued no job")
    for job in ranked[:_LISTED_MAX]:
        differences = _differences(job, task, wanted, queue)
        lines.append(
            f"  {job['task']} {_write(job.get('payload'))} queue={job['queue']} {job['state']}"
            + (
                f"  <- differs in {', '.join(differences)}"
                if differences not in ([], ["task"])
                else ""
            )
        )
    if len(ranked) > _LISTED_MAX:
        lines.append(f"  and {len(ranked) - _LISTED_MAX} more")
    return "\n".join(lines)


def _write(value: object) -> str:
    return msgspec.json.encode(value).decode()
