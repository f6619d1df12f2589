"""The public Schedo object: tasks and schedules in Python, embedded, served or connected."""

from schedo.app.application import Schedo
from schedo.app.handles import JobHandle
from schedo.app.options import JobOptions, ScheduleOptions, TaskOptions
from schedo.app.tasks import Task
from schedo.client.options import Retry

__all__ = [
    "JobHandle",
    "JobOptions",
    "Retry",
    "Schedo",
    "ScheduleOptions",
    "Task",
    "TaskOptions",
]
