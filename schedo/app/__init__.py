"""The public Schedo object: tasks and schedules in Python, embedded, served or connected."""

from schedo.app.application import Schedo
from schedo.app.handles import JobHandle
from schedo.app.options import JobOptions, Retry, ScheduleOptions, TaskOptions
from schedo.app.tasks import Task

__all__ = [
    "JobHandle",
    "JobOptions",
    "Retry",
    "Schedo",
    "ScheduleOptions",
    "Task",
    "TaskOptions",
]
