"""schedo: a durable job scheduler in one process; cron, delayed and immediate jobs.

The public names are loaded at their first use, so that `import schedo` is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from schedo.version import __version__ as __version__

if TYPE_CHECKING:
    from schedo.app.application import Schedo
    from schedo.app.handles import JobHandle
    from schedo.app.tasks import NewJob
    from schedo.client.aio import AsyncClient
    from schedo.client.errors import JobCancelled, JobFailed
    from schedo.client.options import Retry
    from schedo.client.sync import Client
    from schedo.tasks.current_job import CurrentJob, Discard, Snooze, current_job, report_progress
    from schedo.tasks.log_records import name_jobs_in_logs
    from schedo.worker.remote.worker import Worker

__all__ = [
    "AsyncClient",
    "Client",
    "CurrentJob",
    "Discard",
    "JobCancelled",
    "JobFailed",
    "JobHandle",
    "NewJob",
    "Retry",
    "Schedo",
    "Snooze",
    "Worker",
    "current_job",
    "name_jobs_in_logs",
    "report_progress",
]

_MODULES = {
    "AsyncClient": "schedo.client.aio",
    "Client": "schedo.client.sync",
    "CurrentJob": "schedo.tasks.current_job",
    "Discard": "schedo.tasks.current_job",
    "JobCancelled": "schedo.client.errors",
    "JobFailed": "schedo.client.errors",
    "JobHandle": "schedo.app.handles",
    "NewJob": "schedo.app.tasks",
    "Retry": "schedo.client.options",
    "Schedo": "schedo.app.application",
    "Snooze": "schedo.tasks.current_job",
    "Worker": "schedo.worker.remote.worker",
    "current_job": "schedo.tasks.current_job",
    "name_jobs_in_logs": "schedo.tasks.log_records",
    "report_progress": "schedo.tasks.current_job",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
