"""HTTP clients of a server: Client is blocking, AsyncClient is for asyncio.

Each is imported at its first use, so that a program does not load the other one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from schedo.client.aio import AsyncClient
    from schedo.client.aio_handles import AsyncJobHandle, AsyncReservation
    from schedo.client.errors import JobCancelled, JobFailed, NotSchedo, Unreachable
    from schedo.client.events import Event
    from schedo.client.sync import Client
    from schedo.client.sync_handles import Reservation, SyncJobHandle

__all__ = [
    "AsyncClient",
    "AsyncJobHandle",
    "AsyncReservation",
    "Client",
    "Event",
    "JobCancelled",
    "JobFailed",
    "NotSchedo",
    "Reservation",
    "SyncJobHandle",
    "Unreachable",
]

_MODULES = {
    "AsyncClient": "aio",
    "AsyncJobHandle": "aio_handles",
    "AsyncReservation": "aio_handles",
    "Client": "sync",
    "Event": "events",
    "JobCancelled": "errors",
    "JobFailed": "errors",
    "Reservation": "sync_handles",
    "SyncJobHandle": "sync_handles",
    "NotSchedo": "errors",
    "Unreachable": "errors",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
